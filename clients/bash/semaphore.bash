# shellcheck shell=bash
#
# A thin client of redis-semaphore, to be read with "source". README.md tells how to use it.
#
# Functions answer 0 for yes, 1 for no (refused, too late, lost) and 2 for an error, which is told
# on standard error. Names that begin with sem__ are of no concern outside of this file.

# shellcheck source-path=SCRIPTDIR source=redis.bash
source "$(dirname -- "${BASH_SOURCE[0]}")/redis.bash" || return $?

SEM_LIVENESS=15000 # ms: the server passes over a waiter that was silent for so long
SEM_GIVE_BACK=2000 # ms: how long giving back what did not become a permit is repeated

SEM_ID=    # of the newest permit
SEM_TOKEN= # and its fencing token

declare -gA sem__declared=() # semaphore -> the limit that this process declared
declare -gA sem__names=()    # id of each permit and request -> its semaphore
declare -gA sem__ends=()     # id of each permit -> end of its lease, on the clock of sem__now

# sem_acquire NAME LIMIT LEASE_MS [TIMEOUT_MS]: waits for a permit, and sets SEM_ID and SEM_TOKEN.
# Answers 1 when it did not come in time.
sem_acquire() {
    local IFS=$' \t\n' sem__until='' status=0
    sem__check "${1:-}" "${2:-}" "${3:-}" "${4:-}" || return $?
    if [ -n "${4:-}" ]; then
        sem__now
        sem__until=$((sem__now + $4))
    fi
    # Most of the time nobody waits. Then there is no need to listen.
    sem__start "$1" "$2" && sem__ask "$sem__id" "$2" "$3" none poll try || status=$?
    if [ "$status" = 1 ]; then
        status=0
        sem__wait "$sem__id" "$2" "$3" || status=$?
        sem__unlisten
    fi
    sem__finish "$status"
}

# sem_try NAME LIMIT LEASE_MS: the same without waiting. Answers 1 when there is no room, or
# somebody else waits.
sem_try() {
    local IFS=$' \t\n' status=0
    sem__check "${1:-}" "${2:-}" "${3:-}" '' || return $?
    sem__start "$1" "$2" && sem__ask "$sem__id" "$2" "$3" none poll try || status=$?
    [ "$status" != 1 ] || unset "sem__names[$sem__id]" # Nothing is left of it.
    sem__finish "$status"
}

# sem_release ID: gives a permit back. Answers 1 when it was lost before.
sem_release() {
    local IFS=$' \t\n' sem__until='' id=${1:-} name='' left patience=$SEM_GIVE_BACK held
    [ -z "$id" ] || name=${sem__names[$id]:-}
    if [ -z "$name" ]; then
        echo "semaphore: '$id' is not held" >&2
        return 2
    fi
    sem__now
    left=$((${sem__ends[$id]:-0} - sem__now))
    # Again and again, but not when the lease has ended anyway.
    [ -z "${sem__ends[$id]:-}" ] || patience=$((left < SEM_PATIENCE ? left : SEM_PATIENCE))
    sem__call "$patience" release "$name" return "$id" || return $?
    unset "sem__names[$id]" "sem__ends[$id]"
    # Where a reply was lost, the second one is "unknown", since the first try found the permit.
    held=$((left > 0 && (sem__reply[2] != 0 || sem__repeated)))
    while ((sem__reply[1] == 0)); do # There is more to do than the server does in one call.
        sem__call "$SEM_PATIENCE" wake "$name" || return $?
    done
    [ "$held" != 0 ] || return 1
}

# sem_left ID: prints for how many ms the permit is held for sure. 0: it may be lost.
sem_left() {
    local IFS=$' \t\n' left=0
    sem__now
    [ -z "${1:-}" ] || left=$((${sem__ends[$1]:-0} - sem__now))
    echo $((left > 0 ? left : 0))
}

# Gives back whatever is held or waited for, and keeps the exit status.
sem_cleanup() {
    local status=$? id IFS=$' \t\n'
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

# All is checked before anything is sent. Also, where Bash has to calculate with what is no number,
# it leaves all functions, and goes on with the next line of the script as if nothing were wrong.
sem__check() { # NAME LIMIT LEASE_MS TIMEOUT_MS
    local LC_ALL=C # bytes, not characters
    if [[ ${#1} -lt 1 || ${#1} -gt 512 || $1 == *[{}]* || $1 == *[[:cntrl:]]* ]] ||
        { [[ $1 == *[![:ascii:]]* ]] && ! iconv -f UTF-8 -t UTF-8 <<<"$1" >/dev/null 2>&1; }; then
        echo 'semaphore: a name has 1 to 512 bytes of UTF-8, no { and }, and no control characters' >&2
        return 2
    fi
    sem__check_number 'a limit' "$2" 0 4294967295 || return $?
    sem__check_number 'a lease' "$3" 1 604800000 || return $?
    [ -z "$4" ] || sem__check_number 'a timeout' "$4" 0 9007199254740991
}

sem__check_number() { # WHAT NUMBER FROM TO
    if ! [[ $2 =~ ^(0|[1-9][0-9]{0,15})$ ]] || (($2 < $3 || $2 > $4)); then
        echo "semaphore: $1 is a whole number from $3 to $4, not '$2'" >&2
        return 2
    fi
}

# Sets sem__id to a new id, declares the limit if that is still to do.
sem__start() { # NAME LIMIT
    sem__id=
    if [ "${sem__declared[$1]:-}" != "$2" ]; then
        sem__call "$SEM_PATIENCE" limit "$1" declare "$2" || return $?
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

# The end of an acquire that went well (0), was in vain (1), failed (2), or has no time left (3).
sem__finish() { # STATUS
    if [ "$1" = 0 ]; then
        # shellcheck disable=SC2034 # for the caller
        SEM_ID=$sem__id
    elif [ -n "${sem__id:+${sem__names[$sem__id]:-}}" ]; then
        sem_release "$sem__id" || true # Its error, if any, was told. What counts is the one before.
        # Nobody asks for it any more, so it ends by itself.
        unset "sem__names[$sem__id]"
    fi
    [ "$1" != 3 ] || return 1
    return "$1"
}

# Asks until the answer is in time. Answers 0 when the permit was granted, 1 when it was refused or
# is queued.
sem__ask() { # ID LIMIT LEASE_MS ADDRESS WAKE PLACE
    local give_up end
    sem__now
    give_up=$((sem__now + SEM_PATIENCE))
    while :; do
        sem__call "$SEM_PATIENCE" acquire "${sem__names[$1]}" \
            declared "$2" "$4" "$5" "$SEM_LIVENESS" "$1" 1 "$3" "$6" || return $?
        ((sem__reply[2] == 1)) || return 1
        # 10 ms less, as this clock counts in steps of that.
        end=$((sem__sent + $3 - 10))
        sem__now
        if ((sem__now < end)); then
            sem__ends[$1]=$end SEM_TOKEN=${sem__reply[3]}
            return 0
        elif ((sem__now >= ${sem__until:-sem__now + 1})); then
            return 3
        elif ((sem__now >= give_up)); then
            echo "semaphore: answers come later than $3 ms, when the lease has ended" >&2
            return 2
        fi # Asking again begins the lease anew.
    done
}

# Waits in the queue. Answers 3 when there is no time left.
sem__wait() { # ID LIMIT LEASE_MS
    local id=$1 limit=$2 lease=$3 name=${sem__names[$1]}
    local address place=wait third=$((SEM_LIVENESS / 3)) queued ahead asked wake_at next status
    # Hard to guess, as who knows it could send messages to it.
    sem__random
    address=sem:wake:$sem__random
    while :; do
        # Who is not heard listening when its turn comes is taken for gone. So listen first, ask then.
        [ -n "$sem__listener" ] || sem__listen_again "$address" || return $?
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
            ((${sem__until:-next} >= next)) || next=$sem__until
            status=0
            sem__hear "$next" || status=$?
            if [ "$status" = 2 ]; then
                sem__unlisten
                break
            fi
            # Otherwise it was granted before the server said "queued", and lost since: long ago.
            if [ "$status" = 0 ] && sem__read_message "$name" "$id" &&
                ((sem__token == 0 || sem__end - lease >= queued)); then
                # Asking tells why it left the queue without a permit. And when half of the lease
                # may be over, asking begins it anew.
                sem__now
                ((sem__token > 0 && sem__now - asked < lease / 2 - 10)) || break
                # shellcheck disable=SC2034 # for the caller
                sem__ends[$id]=$((asked + lease - 10)) SEM_TOKEN=$sem__token
                return 0
            fi
            sem__now
            if ((sem__now >= ${sem__until:-sem__now + 1})); then
                return 3
            elif ((sem__now >= asked + third)); then
                break
            elif ((sem__now >= ${wake_at:-sem__now + 1})); then
                sem__call "$SEM_PATIENCE" wake "$name" || return $?
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
        # What is not UTF-8 has become U+FFFD, which only a name may have.
        | select(utf8bytelength <= 1048576) | split("\n") | select(.[0] == $name) | .[1:]
        | select(any(contains("\ufffd")) | not) | map(split(" "))
        | select(all(length == 3 and all(.[1:][];
            test("^[0-9]{1,16}$") and tonumber <= 9007199254740991)))
        | .[] | select(.[0] == $id) | "\(.[1] | tonumber) \(.[2] | tonumber)"
    ' <<<"$sem__line" 2>/dev/null) || return 1 # not even JSON
    [ -n "$found" ] || return 1
    read -r sem__token sem__end <<<"$found"
}
