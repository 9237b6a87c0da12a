"""A login speaks the declared language and tells the declared time."""

from datetime import datetime
from zoneinfo import ZoneInfo

from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder


def test_the_time_is_told_in_the_declared_zone(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if expect.base_adopt_timezone == "keep":
        verdict.not_declared("the time zone is kept as it was")
    # Noon in January and in July: a zone is more than today's offset.
    moments = [datetime(2026, month, 15, 12, tzinfo=ZoneInfo("UTC")) for month in (1, 7)]
    wanted = [moment.astimezone(ZoneInfo(expect.base_timezone)).strftime("%H:%M %Z") for moment in moments]
    seconds = [str(int(moment.timestamp())) for moment in moments]
    done = host.run("; ".join(f"date --date=@{second} '+%H:%M %Z'" for second in seconds))
    assert done.stdout.splitlines() == wanted


def test_a_login_has_the_declared_locale(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if expect.base_adopt_locale == "keep":
        verdict.not_declared("the locale is kept as it was")
    # A locale that was never generated is quietly replaced by C, whose character set is not UTF-8.
    done = host.run("env -i su - root -c 'echo $LANG; locale charmap; locale'")
    assert done.stdout.splitlines()[:2] == [expect.base_locale, "UTF-8"]
    assert "Cannot set" not in done.stderr


def test_every_declared_locale_is_there(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    own = [] if expect.base_adopt_locale == "keep" else [expect.base_locale]
    wanted = [*own, *expect.base_extra_locales]
    if not wanted:
        verdict.not_declared("no locale beside those that are there")
    done = host.run("; ".join(f"LC_ALL={locale} locale charmap 2>&1" for locale in wanted))
    assert done.stdout.split() == ["UTF-8"] * len(wanted)
