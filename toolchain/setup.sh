# The steps that set this machine up; sourced by ./run, which sets ROOT, STATE, LOGS, CACHE and defines say and die.
# Each step is a check that takes milliseconds, and the work where the check fails. What takes long runs in the
# background, side by side with other long steps, and writes to a log of its own.
# shellcheck shell=bash

RUNTIME=/run/causeway
MOUNT_NAMESPACE=$RUNTIME/mountns/cgroup2
VENV=$CACHE/venv-$(sha256sum "$ROOT/requirements.lock" | cut -c 1-12)
PULUMI_VERSION=3.259.0
PULUMI_OLDEST=3.200.0
PULUMI=$CACHE/pulumi-$PULUMI_VERSION
SPACE_NEEDED_GIB=10 # the environment 0.5, Go's caches while building Pulumi 3.5, Consul 4 and VictoriaLogs 0.5, the node image and podman's copy 1.2

set_up() { # set_up WORDS…: those that ./run was called with
  mkdir -p "$LOGS" "$CACHE" "$STATE/pulumi"
  trap stop_jobs EXIT
  trap 'exit 130' INT TERM
  install_packages
  if ! venv_ready || ! { pulumi_on_path || pulumi_ready; }; then require_space; fi
  begin_tools "$@"
  venv_ready || background environment "installing the Python packages (once; about 1 minute)" \
    once "$VENV.lock" venv_ready make_venv
  pulumi_on_path || pulumi_ready || background pulumi \
    "installing Pulumi $PULUMI_VERSION (once; about 5 minutes where it has to be built)" \
    once "$PULUMI.lock" pulumi_ready "$ROOT/toolchain/install-pulumi" "$PULUMI_VERSION" "$PULUMI"
  wait_for_jobs
  raise_limits
  allow_congestion_controls
  make_mount_namespace
  make_passphrase
  trap - EXIT INT TERM
}

declare -A JOBS=() # the steps that run in the background: name → pid

background() { # background NAME MESSAGE COMMAND…
  local name=$1 message=$2
  shift 2
  say "$name: $message"
  printf '\n== %s %s\n' "$(date -Is)" "$name: $message" >>"$(log_of "$name")"
  set -m # a process group of its own, so that stop_jobs ends all that it started
  "$@" >>"$(log_of "$name")" 2>&1 </dev/null &
  JOBS[$name]=$!
  set +m
}

log_of() { printf '%s/setup-%s.log' "$LOGS" "$1"; }

stop_jobs() {
  local pid
  for pid in "${JOBS[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
}

wait_for_jobs() {
  local name beat=$SECONDS pause=30
  [[ -t 2 ]] && pause=1
  while ((${#JOBS[@]})); do
    for name in "${!JOBS[@]}"; do
      kill -0 "${JOBS[$name]}" 2>/dev/null && continue
      wait "${JOBS[$name]}" || failed "$name"
      unset "JOBS[$name]"
      say "$name: done"
    done
    if ((${#JOBS[@]} && SECONDS - beat >= pause)); then
      beat=$SECONDS
      say "still at it: ${!JOBS[*]}"
      if [[ -t 2 ]]; then printf '\033[A' >&2; fi # the next line takes its place
    fi
    sleep 0.2
  done
}

failed() {
  local log
  log=$(log_of "$1")
  unset "JOBS[$1]"
  stop_jobs
  tail -n 20 "$log" >&2
  die "$1 failed; the end of its log stands above" \
    "the whole log is $log. Mend the cause and call ./run again: it goes on from here"
}

once() { # once LOCK DONE_CHECK COMMAND…: for what two runs may want at the same time
  local lock=$1 check=$2
  shift 2
  exec 9>"$lock"
  flock 9
  "$check" || "$@" 9>&-
  exec 9>&-
}

require_space() {
  local free_gib
  mkdir -p "$CACHE"
  free_gib=$(($(stat -fc '%a * %S / 1073741824' "$CACHE")))
  ((free_gib >= SPACE_NEEDED_GIB)) || die "setting up needs $SPACE_NEEDED_GIB GiB; $CACHE has $free_gib GiB free" \
    "free some space, or point CAUSEWAY_CACHE at a larger disk"
}

install_packages() {
  command -v dpkg-query >/dev/null || die "this machine has no apt" "use Debian 12 or 13, or Ubuntu 24.04"
  local wanted missing
  mapfile -t wanted < <(grep -v '^#' "$ROOT/toolchain/apt-packages.txt" | sort)
  mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}") <(installed_of "${wanted[@]}"))
  ((${#missing[@]})) || return 0
  require_space
  background packages "installing ${missing[*]}" apt_install "${missing[@]}"
  wait_for_jobs
}

installed_of() {
  dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' | sort
}

apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  local install=(apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@")
  # Lists may be missing or name versions that are gone; fetching them costs more than most installs.
  "${install[@]}" || { apt-get update && "${install[@]}"; }
}

python_to_use() { # the system's own first: it stays when somebody's pyenv changes
  local python
  for python in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
    "$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$python" && return
  done
  die "no Python 3.11 or newer with venv was found" "install python3 and python3-venv"
}

venv_ready() { [[ -e $VENV/.complete ]]; }

make_venv() {
  local python uv=$VENV.uv
  python=$(python_to_use)
  "$python" -m venv --clear "$uv"
  "$uv/bin/pip" install --quiet --require-hashes -r "$ROOT/toolchain/uv.lock.txt"
  # Scripts in a venv carry its path, so it is made in place; .complete is what tells it from a half-made one.
  "$python" -m venv --clear --without-pip "$VENV" # the lock names one
  "$uv/bin/uv" pip sync --python "$VENV/bin/python" --require-hashes "$ROOT/requirements.lock"
  rm -rf "$uv"
  touch "$VENV/.complete"
}

pulumi_on_path() { # a pulumi of the user's that is new enough; asking it takes a second, so the answer is kept
  local found version known=$STATE/pulumi-on-path
  found=$(command -v pulumi) && command -v pulumi-language-python >/dev/null || return 1
  [[ $known -nt $found && $(<"$known") == "$found" ]] && return
  version=$("$found" version 2>/dev/null | tr -d v) || return 1
  [[ $(printf '%s\n' "$PULUMI_OLDEST" "$version" | sort -V | head -n 1) == "$PULUMI_OLDEST" ]] || return 1
  printf '%s\n' "$found" >"$known"
}

pulumi_ready() { [[ -x $PULUMI/bin/pulumi ]]; }

# What no package brings stands in `tools` of the capabilities that need it.
begin_tools() { # begin_tools WORDS…: those that ./run was called with
  local name minutes version pattern target
  while read -r name minutes version pattern; do
    version=$(sed -n "s/^${version#*:}: //p" "$ROOT/${version%%:*}" 2>/dev/null) && [[ $version ]] || continue
    target=$CACHE/$name-$version
    [[ ! -x $target/$name ]] && wants_tool "$name" "$pattern" "$@" || continue
    begin_tool "$name" "$minutes" "$version" "$target"
  done < <(grep -hsEv '^(#|$)' "$ROOT"/infra/capabilities/*/tools)
}

wants_tool() { # wants_tool NAME PATTERN WORDS…: whether what is called needs it; a wrong answer costs time only
  case $3 in
    up) grep -qse "$2" "$ROOT/Pulumi.${4:-local}.yaml" ;;
    test) ! names_a_step "${@:4}" || tested_with "$1" "${@:4}" ;;
    *) false ;;
  esac
}

tested_with() { # tested_with NAME WORDS…: whether a word names a step that needs the tool
  local name=$1 word file step
  shift
  for word in "$@"; do
    [[ $word != *"$name"* ]] || return 0
    for file in $(grep -ls "^TOOLS = .*\"$name\"" "$ROOT"/tests/integration/test_*.py); do
      step=${file##*/test_} step=integration-${step%.py}
      [[ $word != "${step//_/-}" ]] && ! sed -n '/^PROVES = (/{:more;/)$/!{N;b more};p}' "$file" | grep -q "\"$word\"" || return 0
    done
  done
  return 1
}

names_a_step() { # whether any word is one: without it, options or not, all steps run
  local word
  for word in "$@"; do [[ $word == -* || $word =~ ^[0-9]+$ ]] || return 0; done
  return 1
}

begin_tool() { # begin_tool NAME MINUTES VERSION FOLDER: nobody waits for it here; who needs it does, or resumes it
  say "$1: obtaining $1 $3 beside everything else" \
    "(once; about $2 minutes where it has to be built; log: $(log_of "$1"))"
  require_space
  setsid nice "$ROOT/toolchain/install-$1" "$3" "$4" >>"$(log_of "$1")" 2>&1 </dev/null &
}

raise_limits() { # one systemd node takes about 5 inotify instances and 2 keyrings
  local key value file
  while read -r key value; do
    file=/proc/sys/${key//.//}
    (($(<"$file") >= value)) && continue
    say "raising $key from $(<"$file") to $value until the next boot: container nodes need it"
    printf '%s' "$value" >"$file" || die "$key cannot be raised" "set it on the host: sysctl -w $key=$value"
  done <<'END'
fs.inotify.max_user_instances 8192
fs.inotify.max_user_watches 1048576
kernel.keys.maxkeys 20000
kernel.keys.maxbytes 2000000
net.ipv4.ip_forward 1
END
}

# In a node the kernel grants only these; the one that is not the host's default may be missing.
allow_congestion_controls() {
  local name allowed available folder=/proc/sys/net/ipv4
  allowed=$(<$folder/tcp_allowed_congestion_control) available=$(<$folder/tcp_available_congestion_control)
  for name in cubic bbr; do
    [[ " $available " == *" $name "* && " $allowed " != *" $name "* ]] || continue
    say "allowing TCP congestion control $name in nodes until the next boot"
    allowed+=" $name"
    printf '%s' "$allowed" >$folder/tcp_allowed_congestion_control ||
      die "$name cannot be allowed" "set it on the host: sysctl -w net.ipv4.tcp_allowed_congestion_control='$allowed'"
  done
}

# crun takes no hybrid cgroup v1/v2 tree. Where the host mounts one, everything runs in a mount namespace whose
# /sys/fs/cgroup is pure v2. It has to be the same one each time: container networks of another are not visible.
cgroup_is_v2() { [[ $(stat -fc %T /sys/fs/cgroup) == cgroup2fs ]]; }

namespace_works() {
  [[ $(nsenter --mount="$MOUNT_NAMESPACE" stat -fc %T /sys/fs/cgroup 2>/dev/null) == cgroup2fs ]]
}

make_mount_namespace() {
  mkdir -p "$RUNTIME"
  cgroup_is_v2 || namespace_works || once "$RUNTIME/mountns.lock" namespace_works new_mount_namespace
}

new_mount_namespace() {
  local directory
  directory=$(dirname "$MOUNT_NAMESPACE")
  say "making a mount namespace with cgroup v2, which this host does not mount"
  # What an earlier boot or a killed run left behind.
  while umount "$MOUNT_NAMESPACE" 2>/dev/null; do :; done
  mkdir -p "$directory"
  # A namespace can only be kept in a file on a mount that is private.
  mount --make-private "$directory" 2>/dev/null ||
    { mount --bind "$directory" "$directory" && mount --make-private "$directory"; }
  : >"$MOUNT_NAMESPACE"
  unshare --mount="$MOUNT_NAMESPACE" --propagation slave sh -c \
    'umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup' ||
    die "this host's cgroups cannot be mounted as version 2" "boot it with systemd.unified_cgroup_hierarchy=1"
}

make_passphrase() { # encrypts the secrets in the state; never empty, and never replaced
  [[ -s $STATE/passphrase ]] && return
  local fresh
  fresh=$(mktemp "$STATE/passphrase.XXXXXX") # mktemp: mode 0600
  head -c 32 /dev/urandom | base64 -w 0 >"$fresh"
  ln "$fresh" "$STATE/passphrase" 2>/dev/null || true # of two runs, the first one's stays
  rm -f "$fresh"
}

