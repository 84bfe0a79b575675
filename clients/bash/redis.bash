# shellcheck shell=bash disable=SC2034 # The variables are for semaphore.bash.
#
# The part of semaphore.bash that calls scripts and receives messages.
#
# "return $?" differs from "return" here: in a trap, "return" returns the status from before the trap.

# Splits a URL with an IPv6 address into options, because redis-cli before 7.2 cannot parse it.
sem__ipv6() { # URL
    [[ $1 =~ ^redis://(([^:@/]*)(:([^@/]*))?@)?\[([0-9A-Fa-f:.]+)\](:([0-9]+))?(/([0-9]*))?$ ]] || return 0
    local user=${BASH_REMATCH[2]} password=${BASH_REMATCH[4]} host=${BASH_REMATCH[5]}
    local port=${BASH_REMATCH[7]:-6379} database=${BASH_REMATCH[9]:-0}
    SEM_REDIS_CLI=(redis-cli --no-auth-warning -h "$host" -p "$port" -n "$database")
    if [ -n "$user" ]; then
        SEM_REDIS_CLI+=(--user "$(printf '%b' "${user//%/\\x}")")
    fi
    if [ -n "$password" ]; then
        REDISCLI_AUTH=$(printf '%b' "${password//%/\\x}")
        export REDISCLI_AUTH
    fi
}

SEM_MANIFEST=$(dirname -- "${BASH_SOURCE[0]}")/../../lua/manifest.json
SEM_REDIS_CLI=(redis-cli --no-auth-warning -u "${REDIS_URL:-redis://127.0.0.1}")
sem__ipv6 "${REDIS_URL:-}"
SEM_PATIENCE=30000 # ms: how long a call is retried while Redis is unavailable
SEM_CALL_MS=5000   # ms: the timeout of one attempt

declare -gA sem__sha1=() # script -> SHA-1
sem__reached=            # whether the server has replied
sem__until=              # when the current acquire must end, on the clock of sem__now

while IFS=' ' read -r sem__script sem__hash; do
    sem__sha1[$sem__script]=$sem__hash
done < <(jq -r '.scripts[] | "\(.name) \(.sha1)"' "$SEM_MANIFEST")
[ -n "${sem__sha1[acquire]:-}" ] || {
    echo "semaphore: $SEM_MANIFEST contains no scripts" >&2
    return 2
}

# Calls a script of a semaphore, and retries for this many ms while Redis is unavailable. A repeated call has no
# further effect. Sets sem__reply, sem__sent (the time before the first attempt) and sem__repeated. Returns 3 if
# the time is over.
sem__call() { # MS SCRIPT NAME ARGUMENT...
    local patience=$1 script=$2 name=$3 give_up
    sem__deadline "$patience"
    give_up=$sem__deadline sem__sent=$sem__now
    sem__repeated=0
    shift 3
    while :; do
        sem__try_ms $((give_up - sem__now))
        if SEM_CALL_MS=$sem__try_ms sem_eval "$script" 4 "sem:{$name}:permits" "sem:{$name}:queue" \
            "sem:{$name}:clients" "sem:{$name}:state" "$@"; then
            break
        fi
        sem__retry "$give_up" "$script" || return $?
        sem__repeated=1
    done
    if ! [[ $sem_answer =~ ^\[(-?[0-9]+(,-?[0-9]+)*)\]$ ]]; then
        echo "semaphore $name: $script: invalid reply: $sem_answer" >&2
        return 2
    fi
    IFS=, read -ra sem__reply <<<"${BASH_REMATCH[1]}"
}

# Sets sem__deadline to the time in this many ms, or to the end of the acquire if that is earlier.
sem__deadline() { # MS
    sem__now
    sem__deadline=$((sem__now + $1))
    ((sem__deadline <= ${sem__until:-sem__deadline})) || sem__deadline=$sem__until
}

# Sets sem__try_ms to the timeout of one attempt if this many ms are left. It is at least 1 s, because a shorter
# attempt might always fail.
sem__try_ms() { # MS
    sem__try_ms=$(($1 > SEM_CALL_MS ? SEM_CALL_MS : $1 < 1000 ? 1000 : $1))
}

# Pauses after an attempt that failed with sem_answer. If it must not be retried, this prints the cause. Then it
# returns 3 if the time of the acquire is over, and 2 otherwise.
sem__retry() { # GIVE_UP WHAT
    # Redis 6.2 adds a prefix to the errors of commands in scripts.
    local passes='^(ERR Error running script .*: -)?(LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|NOREPLICAS|READONLY) '
    local answer=${sem_answer:-no reply in time} status=0
    case $sem_answer in
        '' | 'Could not connect'* | 'Error: '* | 'I/O error'*) ;;
        *'ERR max number of clients'*) ;; # sometimes after "SELECT 3 failed: "
        *) [[ $sem_answer =~ $passes ]] || status=2 ;;
    esac
    sem__now
    if [ "$status" = 0 ] && ((sem__now >= $1)); then
        status=2
        ((sem__now < ${sem__until:-sem__now + 1})) || status=3
    fi
    if [ "$status" != 0 ]; then
        echo "semaphore: $2: $answer" >&2
        return "$status"
    fi
    sleep 0.2
}

# sem_eval SCRIPT NUMKEYS KEY... ARGUMENT...: sets sem_answer to the reply, as JSON, or to the error.
sem_eval() {
    local script=$1 status=0
    shift
    # If redis-cli cannot select the database of the URL, it prints an error and uses another database.
    if [ -z "$sem__reached" ]; then
        sem_answer=$(set +x && sem_redis PING 2>&1) || return $?
        [ "$sem_answer" = '"PONG"' ] || return 1
        sem__reached=yes
    fi
    # Without a trace (set -x), which would become a part of the reply.
    sem_answer=$(set +x && sem_redis EVALSHA "${sem__sha1[$script]}" "$@" 2>&1) || status=$?
    if [[ $sem_answer == 'NOSCRIPT '* ]]; then
        status=0
        # A pipe, because a variable would lose the final line feed, and the SHA-1 would differ.
        sem_answer=$(set +x && jq -j --arg script "$script" '.scripts[] | select(.name == $script) | .source' \
            "$SEM_MANIFEST" | sem_redis -X SOURCE EVAL SOURCE "$@" 2>&1) || status=$?
    fi
    return "$status"
}

sem_redis() {
    # In the foreground, so that Ctrl-C reaches it.
    timeout --foreground "${SEM_CALL_MS}e-3" "${SEM_REDIS_CLI[@]}" -2 -e --json "$@"
}

sem__listener= # the process id of the coprocess, while there is one

# Starts a coprocess that subscribes, and waits until the server has confirmed it. redis-cli sends TCP
# keep-alives, so it also ends if the server's machine has failed.
sem_listen() { # SUBSCRIBE|SSUBSCRIBE CHANNEL
    local until
    sem__deadline "$SEM_CALL_MS"
    sem__try_ms $((sem__deadline - sem__now))
    until=$((sem__now + sem__try_ms))
    # The coprocess ends redis-cli when its own input ends, because this shell has closed it or has ended in any
    # way. The coprocess keeps no output open, so that this shell sees the end of redis-cli.
    coproc SEM_COPROC {
        set +x
        "${SEM_REDIS_CLI[@]}" -2 -e --json "$@" </dev/null 2>&1 &
        exec >&-
        read -r || kill $! 2>/dev/null
    }
    sem__listener=$SEM_COPROC_PID sem__from=${SEM_COPROC[0]} sem__to=${SEM_COPROC[1]} sem__part=
    sem__line=
    while sem__hear "$until"; do
        case $sem__line in
            '["subscribe",'* | '["ssubscribe",'*) return 0 ;;
            'Reading messages'*) sem__line= ;;
            *) break ;;
        esac
    done
    sem_answer=$sem__line
    sem__unlisten
    return 1
}

sem__listen_again() { # CHANNEL
    local give_up
    sem__deadline "$SEM_PATIENCE"
    give_up=$sem__deadline
    until sem_listen SUBSCRIBE "$1"; do
        sem__retry "$give_up" 'cannot subscribe' || return $?
    done
}

# Returns 1 if the server that replies to calls has no subscriber on the channel. Without a reply, returns 0.
sem__is_heard() { # CHANNEL
    sem__deadline "$SEM_CALL_MS"
    sem__try_ms $((sem__deadline - sem__now))
    sem_answer=$(set +x && SEM_CALL_MS=$sem__try_ms sem_redis PUBSUB NUMSUB "$1" 2>&1) || return 0
    [[ $sem_answer != *',0]' ]]
}

sem__unlisten() {
    [ -n "$sem__listener" ] || return 0
    exec {sem__to}>&- {sem__from}<&-
    wait "$sem__listener" || true # A signal may have ended it.
    sem__listener=
}

# Sets sem__line to the next line of redis-cli. Returns 1 if none arrives before this time, and 2 if redis-cli
# has ended.
sem__hear() { # UNTIL
    local REPLY='' status=0 ms seconds
    sem__now
    ms=$(($1 > sem__now ? $1 - sem__now : 1))
    printf -v seconds '%d.%03d' $((ms / 1000)) $((ms % 1000))
    # Without IFS=, because a trap that ends this read would then run with an empty IFS.
    read -r -t "$seconds" -u "$sem__from" || status=$?
    sem__part+=$REPLY # This may be a part of a line.
    ((status <= 128)) || return 1
    sem__line=$sem__part sem__part=
    [ "$status" = 0 ] || return 2
}

# Sets sem__now to the time of a monotonic clock in ms, in steps of 10 ms.
sem__now() {
    local seconds
    IFS=' ' read -r seconds _ </proc/uptime
    sem__now=$((10#${seconds/./} * 10))
}

# Sets sem__random to 128 random bits of the system.
sem__random() {
    printf -v sem__random '%08x%08x%08x%08x' "$SRANDOM" "$SRANDOM" "$SRANDOM" "$SRANDOM"
}
