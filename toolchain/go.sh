# What the install scripts that build from Go modules share; sourced by them.
# shellcheck shell=bash

go_is_new_enough() { # from 1.21 on, Go fetches by itself the exact version a go.mod asks for
  local found
  found=$(go env GOVERSION 2>/dev/null) || return 1
  [[ $(printf '%s\n' go1.21 "$found" | sort -V | head -n 1) == go1.21 ]]
}

require_go() { # require_go WHAT OTHERWISE: what is to be built, and what to do where Go cannot be had
  export CGO_ENABLED=0 GOTOOLCHAIN=auto GOFLAGS="-mod=readonly -buildvcs=false"
  GOFLAGS+=" -gcflags=all=-dwarf=false" # what is linked without symbols needs none: a twelfth of the compiler's work
  export GOGC=400 # the compiler collects its garbage less often: a fifth of its work, for memory that is there
  go_is_new_enough && return
  echo "Go is missing or older than 1.21: trying the distribution's package"
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 golang-go || true
  hash -r
  go_is_new_enough && return
  echo "error: $1 can be neither downloaded nor built: building needs Go 1.21 or newer"
  echo "  → install Go from https://go.dev/dl (or Debian's backports), or $2"
  return 1
}
