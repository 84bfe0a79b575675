# shellcheck shell=bash
#
# A thin client of redis-semaphore, to be read with "source". README.md tells how to use it.
#
# Functions answer 0 for yes, 1 for no (refused, too late, lost) and 2 for an error, which is told
# on standard error. Names that begin with sem__ are of no concern outside of this file.

SEM_MANIFEST=$(dirname -- "${BASH_SOURCE[0]}")/../../lua/manifest.json
SEM_REDIS_CLI=(redis-cli --no-auth-warning -u "${REDIS_URL:-redis://127.0.0.1}")
SEM_LIVENESS=15000 # ms: the server passes over a waiter that was silent for so long
SEM_PATIENCE=30000 # ms: how long a call is repeated while Redis is away
SEM_CALL_SECONDS=5 # how long one try of a call may take

SEM_ID=    # of the newest permit
SEM_TOKEN= # and its fencing token

declare -gA sem__sha1=()     # script -> SHA-1
declare -gA sem__declared=() # semaphore -> the limit that this process declared
declare -gA sem__names=()    # id of each permit and request -> its semaphore
declare -gA sem__ends=()     # id -> end of its lease, on the clock of sem__now

while read -r sem__script sem__hash; do
    sem__sha1[$sem__script]=$sem__hash
done < <(jq -r '.scripts[] | "\(.name) \(.sha1)"' "$SEM_MANIFEST")
[ -n "${sem__sha1[acquire]:-}" ] || {
    echo "semaphore: no scripts in $SEM_MANIFEST" >&2
    return 2
}

# sem_acquire NAME LIMIT LEASE_MS [TIMEOUT_MS]: waits for a permit, and sets SEM_ID and SEM_TOKEN.
# Answers 1 when it did not come in time.
sem_acquire() {
    local name=$1 limit=$2 lease=$3 until='' id status=0
    if [ -n "${4:-}" ]; then
        sem__now
        until=$((sem__now + $4))
    fi
    # Most of the time nobody waits. Then there is no need to listen.
    sem__start "$name" "$limit" || return
    id=$sem__id
    sem__ask "$id" "$limit" "$lease" none poll try || status=$?
    if [ "$status" = 1 ]; then
        status=0
        sem__wait "$id" "$limit" "$lease" "$until" || status=$?
        sem__unlisten
    fi
    sem__finish "$id" "$status"
}

# sem_try NAME LIMIT LEASE_MS: the same without waiting. Answers 1 when there is no room, or
# somebody else waits.
sem_try() {
    local status=0
    sem__start "$1" "$2" || return
    sem__ask "$sem__id" "$2" "$3" none poll try || status=$?
    sem__finish "$sem__id" "$status"
}

# sem_release ID: gives a permit back. Answers 1 when it was lost before.
sem_release() {
    local id=${1:?the id of a permit} name left held
    name=${sem__names[$id]:-}
    if [ -z "$name" ]; then
        echo "semaphore: $id is not held" >&2
        return 2
    fi
    # Again and again until the lease has ended anyway.
    sem__now
    left=$((${sem__ends[$id]:-0} - sem__now))
    sem__call "$left" release "$name" return "$id" || return
    unset "sem__names[$id]" "sem__ends[$id]"
    # Where a reply was lost, the second one is "unknown", since the first try found the permit.
    held=$((left > 0 && (sem__reply[2] != 0 || sem__repeated)))
    while ((sem__reply[1] == 0)); do # There is more to do than the server does in one call.
        sem__call "$SEM_PATIENCE" wake "$name" || return
    done
    [ "$held" != 0 ] || return 1
}

# sem_left ID: prints for how many ms the permit is held for sure. 0: it may be lost.
sem_left() {
    sem__now
    local left=$((${sem__ends[$1]:-0} - sem__now))
    echo $((left > 0 ? left : 0))
}

# Gives back whatever is held or waited for, and keeps the exit status.
sem_cleanup() {
    local status=$? id
    sem__unlisten
    for id in "${!sem__names[@]}"; do
        sem_release "$id" || true
    done
    return "$status"
}

# A trap that the script sets later replaces this one: it must call sem_cleanup.
eval "sem__trap=($(trap -p EXIT))" # trap -- 'what was set' EXIT
# shellcheck disable=SC2064 # expanded now: the trap that is set now
trap "sem_cleanup; ${sem__trap[2]:-}" EXIT

# Sets sem__id to a new id, declares the limit if that is still to do.
sem__start() { # NAME LIMIT
    sem__check_name "$1" || return
    if [ "${sem__declared[$1]:-}" != "$2" ]; then
        sem__call "$SEM_PATIENCE" limit "$1" declare "$2" || return
        if ((sem__reply[5] >= 0 && sem__reply[5] != $2)); then
            echo "semaphore: the limit of $1 was declared as ${sem__reply[5]}, now as $2" >&2
        fi
        sem__declared[$1]=$2
    fi
    sem__random
    sem__id=$HOSTNAME:$BASHPID:$sem__random
    # From here on it is given back when the script ends.
    sem__names[$sem__id]=$1
}

sem__check_name() { # NAME
    local LC_ALL=C # bytes, not characters
    if [[ ${#1} -lt 1 || ${#1} -gt 512 || $1 == *[{}]* || $1 == *[[:cntrl:]]* ]]; then
        echo 'semaphore: a name has 1 to 512 bytes, no { and }, and no control characters' >&2
        return 2
    fi
}

# The end of an acquire that went well (0), was in vain (1) or failed (2).
sem__finish() { # ID STATUS
    if [ "$2" = 0 ]; then
        # shellcheck disable=SC2034 # for the caller
        SEM_ID=$1
    elif [ "$2" = 1 ] && [ -z "${sem__ends[$1]:-}" ]; then
        unset "sem__names[$1]" # It was refused: nothing is left of it.
    else
        sem_release "$1" || true # Its error, if any, was told. What counts is the one before.
    fi
    return "$2"
}

# One call of acquire. Answers 0 when the permit was granted, 1 when it was not.
sem__ask() { # ID LIMIT LEASE_MS ADDRESS WAKE PLACE
    local status=0
    sem__call "$SEM_PATIENCE" acquire "${sem__names[$1]}" \
        declared "$2" "$4" "$5" "$SEM_LIVENESS" "$1" 1 "$3" "$6" || status=$?
    if [ "$status" = 0 ] && [ "${sem__reply[2]}" = 0 ]; then
        return 1
    fi
    # Granted, or queued and the lease may begin at any time from now on, or nobody knows.
    sem__ends[$1]=$((sem__sent + $3))
    [ "$status" = 0 ] || return "$status"
    [ "${sem__reply[2]}" = 1 ] || return 1
    SEM_TOKEN=${sem__reply[3]}
}

# Waits in the queue. Answers 1 at the time UNTIL, if that is given.
sem__wait() { # ID LIMIT LEASE_MS UNTIL
    local id=$1 limit=$2 lease=$3 until=$4 name=${sem__names[$1]}
    local address place=wait third=$((SEM_LIVENESS / 3)) queued ahead asked wake_at next status
    # Hard to guess, as who knows it could send messages to it.
    sem__random
    address=sem:wake:$sem__random
    while :; do
        # Who is not heard listening when its turn comes is taken for gone. So listen first, ask then.
        [ -n "$sem__listener" ] || sem__listen_again "$address" || return
        status=0
        sem__ask "$id" "$limit" "$lease" "$address" publish "$place" || status=$?
        [ "$status" = 1 ] || return "$status"
        queued=${sem__reply[0]} place=${sem__reply[3]} ahead=$((sem__reply[4] - 1)) asked=$sem__sent
        while :; do
            # Of those who wait only the first few call wake, one after the other.
            if [ -n "${sem__reply[*]}" ]; then
                sem__now
                wake_at=
                if ((sem__reply[1] >= 0 && 20 * ahead < third)); then
                    # 10 ms more, as this clock counts in steps of that.
                    wake_at=$((sem__now + sem__reply[1] + 20 * ahead + 10))
                fi
                sem__reply=()
            fi
            next=$((asked + third))
            ((${wake_at:-next} >= next)) || next=$wake_at
            ((${until:-next} >= next)) || next=$until
            status=0
            sem__hear "$next" || status=$?
            sem__now
            if [ "$status" = 2 ]; then
                sem__unlisten
                break
            fi
            # Otherwise it was granted before the server said "queued", and lost since: long ago.
            if [ "$status" = 0 ] && sem__read_message "$name" "$id" &&
                ((sem__token == 0 || sem__end - lease >= queued)); then
                # Asking tells why it left the queue without a permit. And when half of the lease
                # may be over, asking begins it anew.
                ((sem__token > 0 && sem__now - asked < lease / 2)) || break
                # shellcheck disable=SC2034 # for the caller
                SEM_TOKEN=$sem__token
                return 0
            fi
            if ((sem__now >= ${until:-sem__now + 1})); then
                return 1
            elif ((sem__now >= asked + third)); then
                break
            elif ((sem__now >= ${wake_at:-sem__now + 1})); then
                sem__call "$SEM_PATIENCE" wake "$name" || return
            fi
        done
    done
}

# Sets sem__token and sem__end to what the line of sem__hear says about a request. Answers 1 if it
# says nothing about it, or is nothing that a script sends.
sem__read_message() { # NAME ID
    local found
    found=$(jq -r --arg name "$1" --arg id "$2" '
        select(.[0] == "message") | .[2]
        | select(utf8bytelength <= 1048576 and (contains("\ufffd") | not)) | split("\n")
        | select(.[0] == $name) | [.[1:][] | split(" ")]
        | select(all(length == 3 and all(.[1:][];
            test("^[0-9]{1,16}$") and tonumber <= 9007199254740991)))
        | .[] | select(.[0] == $id) | "\(.[1] | tonumber) \(.[2] | tonumber)"
    ' <<<"$sem__line" 2>/dev/null) || return 1 # not even JSON
    [ -n "$found" ] || return 1
    read -r sem__token sem__end <<<"$found"
}

# Calls a script of a semaphore, again and again while Redis is away, for so many ms: each script
# may be called twice. Sets sem__reply, sem__sent to the time before it was called, and
# sem__repeated.
sem__call() { # MS SCRIPT NAME ARGUMENT...
    local script=$2 name=$3 until
    sem__now
    until=$((sem__now + $1))
    sem__repeated=0
    shift 3
    while :; do
        sem__now
        sem__sent=$sem__now
        if sem_eval "$script" 4 "sem:{$name}:permits" "sem:{$name}:queue" "sem:{$name}:waiting" \
            "sem:{$name}:state" "$@"; then
            break
        fi
        case $sem_answer in
            '' | 'Could not connect'* | 'Error: '* | 'I/O error'*) ;;
            'LOADING '* | 'BUSY '* | 'TRYAGAIN '* | 'CLUSTERDOWN '* | 'MASTERDOWN '* | 'READONLY '*) ;;
            *) until=0 ;;
        esac
        sem__now
        if ((sem__now >= until)); then
            echo "semaphore: $script: ${sem_answer:-no answer in $SEM_CALL_SECONDS s}" >&2
            return 2
        fi
        sem__repeated=1
        sleep 0.2
    done
    if ! [[ $sem_answer =~ ^\[(-?[0-9]+(,-?[0-9]+)*)\]$ ]]; then
        echo "semaphore: $script: not a reply: $sem_answer" >&2
        return 2
    fi
    IFS=, read -ra sem__reply <<<"${BASH_REMATCH[1]}"
}

# sem_eval SCRIPT NUMKEYS KEY... ARGUMENT...: sets sem_answer to the reply, as JSON, or to the error.
sem_eval() {
    local script=$1 status=0
    shift
    sem_answer=$(sem_redis EVALSHA "${sem__sha1[$script]}" "$@" 2>&1) || status=$?
    if [[ $sem_answer == 'NOSCRIPT '* ]]; then
        status=0
        # In a pipe, as a variable would lose the line feed at the end, and the SHA-1 would differ.
        sem_answer=$(jq -j --arg script "$script" '.scripts[] | select(.name == $script) | .source' \
            "$SEM_MANIFEST" | sem_redis -X SOURCE EVAL SOURCE "$@" 2>&1) || status=$?
    fi
    return "$status"
}

sem_redis() {
    # In the foreground, for else Ctrl-C would not reach it.
    timeout --foreground "$SEM_CALL_SECONDS" "${SEM_REDIS_CLI[@]}" -2 -e --json "$@"
}

sem__listener= # the process id of the coprocess, while there is one

# Starts a coprocess that listens, and waits until the server has confirmed it. (redis-cli sends
# TCP keep-alives, so it ends when the server's machine is gone, too.)
sem_listen() { # SUBSCRIBE|SSUBSCRIBE CHANNEL
    local until
    # The coprocess ends redis-cli when its input ends: when this shell closes it, or is gone,
    # whatever ended it. It keeps no output open, so that this shell sees the end of redis-cli.
    coproc SEM_COPROC {
        "${SEM_REDIS_CLI[@]}" -2 -e --json "$@" </dev/null 2>&1 &
        exec >&-
        read -r || kill $! 2>/dev/null
    }
    sem__listener=$SEM_COPROC_PID sem__from=${SEM_COPROC[0]} sem__to=${SEM_COPROC[1]} sem__part=
    sem__now
    until=$((sem__now + SEM_CALL_SECONDS * 1000))
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

sem__listen_again() { # ADDRESS
    local until
    sem__now
    until=$((sem__now + SEM_PATIENCE))
    until sem_listen SUBSCRIBE "$1"; do
        sem__now
        if ((sem__now >= until)) || [[ $sem_answer == NO[AP]* ]]; then # NOAUTH, NOPERM
            echo "semaphore: cannot listen: ${sem_answer:-no answer in $SEM_CALL_SECONDS s}" >&2
            return 2
        fi
        sleep 0.2
    done
}

sem__unlisten() {
    [ -n "$sem__listener" ] || return 0
    exec {sem__to}>&- {sem__from}<&-
    wait "$sem__listener" || true # It was ended with a signal, perhaps.
    sem__listener=
}

# Sets sem__line to the next line of redis-cli. Answers 1 when none came until then, 2 when
# redis-cli has ended.
sem__hear() { # UNTIL
    local REPLY='' status=0 ms seconds
    sem__now
    ms=$(($1 > sem__now ? $1 - sem__now : 1))
    printf -v seconds '%d.%03d' $((ms / 1000)) $((ms % 1000))
    # Not with IFS= in front: a trap that ends this read would find it empty.
    read -r -t "$seconds" -u "$sem__from" || status=$?
    sem__part+=$REPLY # Half a line may have come.
    ((status <= 128)) || return 1
    sem__line=$sem__part sem__part=
    [ "$status" = 0 ] || return 2
}

# Sets sem__now to a time in ms that nobody sets back or forth (in steps of 10).
sem__now() {
    local seconds
    read -r seconds _ </proc/uptime
    sem__now=$((10#${seconds/./} * 10))
}

# Sets sem__random to 128 random bits, from the system.
sem__random() {
    printf -v sem__random '%08x%08x%08x%08x' "$SRANDOM" "$SRANDOM" "$SRANDOM" "$SRANDOM"
}
