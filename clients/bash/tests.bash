#!/usr/bin/env bash
#
# tests.bash: tests that only Bash needs, on the server of REDIS_URL.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

failed=0
# Runs a script from standard input, and compares its output.
expect() { # WHAT OUTPUT [OPTION...]
    local output
    output=$(timeout 120 bash "${@:3}" -s "test-$SRANDOM" 2>/dev/null) || output+=" status $?"
    [ "$output" = "$2" ] || {
        echo "FAILED: $1: $output" >&2
        failed=1
    }
}

for wrong in "1 08000" "1 0" "1 -1" "1 1e3" "1 ''" "1 604800001" "08 5000" "abc 5000" "-1 5000" \
    "4294967296 5000" "'' 5000" "'a[\$(echo hit >&2)]' 5000" "1 5000 1.5" "1 5000 2s" "1 5000 -1" "" "1"; do
    for call in sem_acquire sem_try_acquire; do
        [[ $call != sem_try_acquire || $wrong != *5000\ * ]] || continue
        expect "$call $wrong" 'returned 2' <<END
source ./semaphore.bash
sem_redis() { echo 'it was sent'; exit; }
$call "\$1" $wrong
echo "returned \$?"
END
    done
done

# Options of the script, set before or after it reads the client.
for setting in "IFS=\$'\\n\\t'" 'IFS=0123456789' 'IFS=' 'set -x' 'set -eufo pipefail' 'set -o posix' 'set -C' \
    'shopt -s nullglob failglob nocasematch' 'shopt -s inherit_errexit; set -e' 'set -a' 'set -m'; do
    for when in before after; do
        expect "$setting $when" 'held released' <<END
[ $when = after ] || { $setting; }
source ./semaphore.bash
$setting
sem_acquire "\$1" 1 30000
first=\$SEM_ID
sem_try_acquire "\$1" 1 30000 || sem_acquire "\$1" 1 30000 200 || [ "\$(sem_expires_in "\$first")" -gt 20000 ] && printf held
{ sleep 0.5; } &
(sem_acquire "\$1" 1 30000 10000 && [ -n "\$SEM_FENCING_TOKEN" ] && sem_release "\$SEM_ID") >/dev/null &
sleep 0.3
sem_release "\$first" && wait && printf ' released'
END
    done
done

expect 'functions without an ID' '2 2 0' <<'END'
source ./semaphore.bash
sem_release
printf '%s ' $?
sem_release nobody
printf '%s ' $?
sem_expires_in
END

expect 'a release without a reply' '2 0 2' <<'END'
source ./semaphore.bash
eval "really_$(declare -f sem_eval)"
sem_acquire "$1" 1 30000
sem_eval() { really_sem_eval "$@" && sem_answer='ERR no reply' && return 1; }
sem_release "$SEM_ID"
printf '%s ' $?
sem_eval() { really_sem_eval "$@"; }
sem_release "$SEM_ID"
printf '%s ' $?
sem_release "$SEM_ID"
echo $?
END

# A failure of wake changes neither a grant, a release nor a timeout.
for failure in '2 NOPERM no' '1 LOADING no'; do
    expect "a wake that fails with ${failure#* }" "0 ${failure%% *} 0 in time" <<END
source ./semaphore.bash
eval "really_\$(declare -f sem_eval)"
sem_eval() {
    [ \$1 != wake ] || { sem_answer='${failure#* }' && return 1; }
    really_sem_eval "\$@" && sem_answer=\${sem_answer/,-1,/,0,} # The server has more work.
}
sem_try_acquire "\$1" 1 30000
printf '%s ' \$?
sem_acquire "\$1" 1 30000 300
printf '%s ' \$?
sem_release "\$SEM_ID"
printf '%s ' \$?
((SECONDS >= 20)) || echo in time
END
done

expect 'an IPv6 address' 'redis-cli --no-auth-warning -h ::1 -p 7 -n 3 --user jobs s@c' <<'END'
REDIS_URL='redis://jobs:s%40c@[::1]:7/3'
source ./semaphore.bash
echo "${SEM_REDIS_CLI[*]} $REDISCLI_AUTH"
END

expect 'the traps of the parent shell' 'own outer' <<'END'
trap 'echo outer' EXIT
(source ./semaphore.bash)
(
    trap 'printf "own "' EXIT
    source ./semaphore.bash
)
END

[ "$failed" = 0 ] && echo 'tests.bash: passed'
