# shellcheck shell=bash disable=SC2034,SC2154 # Files share variables.
#
# The shared part of the tests of the programs "turns": self-test and server-test "source" this file. The array
# `turns` contains the command to test. REDIS_URL names the server.

work=$(mktemp -d)
# shellcheck disable=SC2317 # the trap calls it
end_turns() {
    local pids
    # Only running jobs, because the process IDs of ended ones may belong to other processes now.
    mapfile -t pids < <(jobs -pr)
    # With KILL, because the remaining processes may ignore other signals.
    [ ${#pids[@]} = 0 ] || kill -KILL "${pids[@]}" 2>/dev/null || true
    rm -rf "$work"
}
trap end_turns EXIT
# shellcheck source-path=SCRIPTDIR source=bash/semaphore.bash
source "$(dirname -- "${BASH_SOURCE[0]}")/bash/semaphore.bash"

test_name() { # WHAT [NAME]
    echo "$(basename -- "$0"): $1"
    sem__random
    name=${2:-self-test-$sem__random}
    keys=("sem:{$name}:permits" "sem:{$name}:queue" "sem:{$name}:clients" "sem:{$name}:state")
    rm -f "$work"/*
}

fail() {
    echo "FAILED: $1" >&2
    tail -v -n 5 "$work"/* >&2
    exit 1
}

# Starts the program in the background, with output to a file, and sets pid.
start() { # FILE LIMIT COUNT HOLD_MS LEASE_MS [TIMEOUT_MS]
    : >"$work/$1" # so that it exists immediately
    "${turns[@]}" "$name" "${@:2}" >"$work/$1" 2>"$work/$1.errors" &
    pid=$!
}

# Waits until a command succeeds. Fails after this many seconds.
within() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        ((SECONDS <= end)) || fail "not within $1 s: ${*:2}"
        sleep 0.05
    done
}
eventually() { within 120 "$@"; } # enough for any busy machine

ended() { [[ $'\n'$(jobs -pr)$'\n' != *$'\n'"$1"$'\n'* ]]; }
has_line() { grep -q "^$2" "$work/$1"; }                   # has_line FILE BEGINNING
script() { sem_eval "$1" 4 "${keys[@]}" "${@:2}"; }        # script SCRIPT ARGUMENT...: sets sem_answer
number() { jq -c ".[$1]" <<<"$sem_answer"; }               # number INDEX: prints a number of the reply
queued() { [ "$(sem_redis ZCARD "${keys[1]}")" = "$1" ]; } # queued NUMBER
first_in_queue() { sem_redis ZRANGE "${keys[1]}" 0 0 | jq -r '.[0]'; }
nothing_is_left() { script inspect 0 0 0 0 && [ "$(number 4:7)" = '[0,0,0]' ]; }
