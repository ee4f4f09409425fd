# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# What ./run and ./test share: packages, configuring, building, progress lines.
# Source it with `root` set to the top of the project. Nothing here writes to
# stdout: that belongs to the program.

# Packages as Debian and Ubuntu name them.
packages_build=(cmake ninja-build g++ pkg-config libhwy-dev nlohmann-json3-dev
  libcli11-dev libfmt-dev libutf8proc-dev libpcre2-dev libsentencepiece-dev
  libcpp-httplib-dev libjpeg62-turbo-dev libpng-dev libwebp-dev)
packages_test=(python3 python3-venv binutils libgtest-dev libgmock-dev clang-format-14)
packages_viewer=(nodejs npm chromium)
packages_clang=(clang-14)
packages_fuzz=(clang-14 libclang-rt-14-dev)
packages_mpi=(libopenmpi-dev openmpi-bin)
packages_video=(libavformat-dev libavcodec-dev libswscale-dev)
packages_video_test=(ffmpeg)
packages_bench=(python3 python3-venv libopenblas-dev)

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# A progress line that overwrites itself on a terminal. Elsewhere progress() is
# silent, and finish_line() alone leaves a trace.
on_terminal() { [[ -t 2 && ${TERM:-dumb} != dumb ]]; }
progress() { if on_terminal; then printf '\r\033[K%s' "$*" >&2; fi; }
finish_line() { if on_terminal; then printf '\r\033[K' >&2; fi; say "$*"; }
clear_line() { if on_terminal; then printf '\r\033[K' >&2; fi; }

minutes() { # seconds -> "3 min 07 s"
  if (($1 < 60)); then printf '%d s' "$1"; else printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); fi
}

# need_packages NAME...: installs what is missing, or says exactly what to do.
need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    # Another kind of system: CMake will name what it does not find.
    local tool
    for tool in cmake ninja c++; do
      command -v "$tool" >/dev/null ||
        die "needed and not found: $tool. On Debian the packages are: $*"
    done
    return
  fi
  local missing=() package status
  for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    # Some machines bring newer tools of their own from elsewhere.
    case $package in
      cmake | pkg-config | g++) command -v "$package" >/dev/null && status=installed ;;
      ninja-build) command -v ninja >/dev/null && status=installed ;;
      python3) command -v python3 >/dev/null && status=installed ;;
      python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null && status=installed ;;
      binutils) command -v readelf >/dev/null && status=installed ;;
      clang-14) command -v clang++-14 >/dev/null && status=installed ;;
      nodejs) command -v node >/dev/null && status=installed ;;
      npm | chromium) command -v "$package" >/dev/null && status=installed ;;
    esac
    [[ $status == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if [[ $(id -u) != 0 ]]; then
    say "these packages are missing; please run:"
    die "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
  fi
  local log=$root/build/packages.log
  mkdir -p "$root/build"
  progress "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1 </dev/null; then
    clear_line
    tail -n 5 "$log" >&2
    die "apt-get could not install: ${missing[*]}; the whole log is $log"
  fi
  finish_line "installed ${missing[*]}"
}

# want_packages WHAT NAME...: the same for packages that only WHAT needs.
want_packages() {
  local what=$1
  shift
  (need_packages "$@") || say "$what will be skipped"
}

# One build at a time in a folder: a second ./run or ./test waits for the first.
lock_build() { # preset
  command -v flock >/dev/null || return 0
  mkdir -p "$root/build"
  exec 9>"$root/build/.$1.lock"
  if ! flock -n 9; then
    progress "waiting for another build of $1"
    flock 9
  fi
}
unlock_build() { exec 9>&-; }

# build_preset PRESET [--target NAME]... [-DNAME=VALUE]...: configures where that
# is needed and builds; on failure shows the part of the log that matters.
build_preset() {
  local preset=$1 defines=() targets=()
  shift
  while (($#)); do
    case $1 in
      --target) targets+=("$2"); shift 2 ;;
      *) defines+=("$1"); shift ;;
    esac
  done
  local dir=$root/build/$preset log=$root/build/$preset/build.log start=$SECONDS
  lock_build "$preset"
  mkdir -p "$dir"
  : >"$log"
  # A build folder that was moved or copied with its project is of no use.
  if [[ -f $dir/CMakeCache.txt ]] &&
    ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt"; then
    rm -rf "$dir/CMakeCache.txt" "$dir/CMakeFiles"
  fi
  local define known=yes
  for define in ${defines[@]+"${defines[@]}"}; do
    define=${define#-D}
    grep -qsx "${define%%=*}:[A-Z]*=${define#*=}" "$dir/CMakeCache.txt" || known=no
  done
  if [[ ! -f $dir/build.ninja || $root/CMakePresets.json -nt $dir/build.ninja || $known == no ]]; then
    progress "configuring $preset"
    if ! (cd "$root" && cmake --preset "$preset" ${defines[@]+"${defines[@]}"}) >>"$log" 2>&1 </dev/null; then
      clear_line
      grep -A 12 -m 1 'CMake Error' "$log" >&2 || tail -n 20 "$log" >&2
      die "configuring failed; the whole log is $log"
    fi
  fi
  local rc=0
  NINJA_STATUS='[%f/%t] ' ninja -C "$dir" ${targets[@]+"${targets[@]}"} 2>&1 </dev/null |
    tee -a "$log" | show_build_progress "$preset" || rc=$?
  clear_line
  if ((rc)); then
    # From the first failure on, without the commands, which are long.
    if grep -q '^FAILED: ' "$log"; then
      sed -n '/^FAILED: /,$p' "$log" | grep -v '^\[\|/bin/\(ccache \|c++\|g++\|clang\)' |
        head -n 40 >&2 || true
    else
      tail -n 5 "$log" >&2
    fi
    die "building $preset failed; the whole log is $log"
  fi
  if ((SECONDS - start > 5)); then say "built $preset in $(minutes $((SECONDS - start)))"; fi
  unlock_build
}

# Reads ninja's "[12/345] ..." lines: a moving percentage on a terminal, a line
# for each quarter elsewhere.
show_build_progress() { # preset
  local line quarter=0 percent shown=-1
  while IFS= read -r line; do
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      percent=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2]))
      if on_terminal; then
        ((percent == shown)) || progress "$(printf 'building %s [%3d%%]' "$1" "$percent")"
        shown=$percent
      elif ((BASH_REMATCH[2] > 12 && percent / 25 > quarter)); then
        quarter=$((percent / 25))
        say "$(printf 'building %s [%3d%%]' "$1" "$percent")"
      fi
    fi
  done
}
