# shellcheck shell=bash
#
# A thin client of redis-semaphore, to be read with "source". README.md tells how to use it.
#
# Functions answer 0 for yes, 1 for no (refused, too late, lost) and 2 for an error, which is told
# on standard error. Names that begin with sem__ are of no concern outside of this file.

# shellcheck source-path=SCRIPTDIR source=redis.bash
source "$(dirname -- "${BASH_SOURCE[0]}")/redis.bash" || return $?

SEM_HEARTBEAT_TIMEOUT=15000 # ms: the server passes over a waiter that was silent for so long
SEM_GIVE_BACK=2000 # ms: how long giving back what did not become a permit is repeated

SEM_ID=  # of the newest permit
SEM_TOKEN= # and its fencing token

sem__host=$(LC_ALL=C && echo "${HOSTNAME//[^A-Za-z0-9._-]/-}")
declare -gA sem__declared=() # semaphore -> the limit that this process declared
declare -gA sem__names=()    # ID of each permit and request -> its semaphore
declare -gA sem__ends=()     # ID of each permit -> end of its lease, on the clock of sem__now
declare -gA sem__tried=()    # ID -> 1: a release without an answer may have given it back

# sem_acquire NAME LIMIT LEASE_MS [TIMEOUT_MS]: waits for a permit, and sets SEM_ID and SEM_TOKEN.
# Answers 1 when it did not come in time.
sem_acquire() { sem__acquire sem__wait "$@"; }

# sem_try NAME LIMIT LEASE_MS: the same without waiting. Answers 1 when no permit is free, or
# somebody else waits.
sem_try() { sem__acquire '' "${@:1:3}"; }

# sem_release ID: gives a permit back. Answers 1 when it was lost before.
sem_release() {
    local IFS=$' \t\n' sem__until='' id=${1:-} name='' left patience=$SEM_GIVE_BACK held repeated
    [ -z "$id" ] || name=${sem__names[$id]:-}
    if [ -z "$name" ]; then
        echo "semaphore: '$id' is not held" >&2
        return 2
    fi
    sem__now
    left=$((${sem__ends[$id]:-0} - sem__now))
    # Again and again, but not when the lease has ended anyway.
    [ -z "${sem__ends[$id]:-}" ] || patience=$((left < SEM_PATIENCE ? left : SEM_PATIENCE))
    repeated=${sem__tried[$id]:-0} sem__tried[$id]=1
    sem__call "$patience" release "$name" return "$id" || return $?
    # In single quotes, as unset expands what is in the brackets. In double ones it would do so again,
    # and run what an ID may have in it.
    unset 'sem__names[$id]' 'sem__ends[$id]' 'sem__tried[$id]'
    # Where a reply was lost, the second one is "unknown", since the first try found the permit.
    held=$((left > 0 && (sem__reply[2] != 0 || sem__repeated || repeated)))
    sem__serve_others "$name"
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

# A trap that the script sets later replaces this one: it must call sem_cleanup. In a subshell Bash
# shows the traps of the shell around it, until one is set there, even if it is for no signal.
trap - SEM_NONE 2>/dev/null || true
eval "sem__trap=($(trap -p EXIT))" # trap -- 'what was set' EXIT
sem__trap=${sem__trap[2]:-}
# shellcheck disable=SC2064 # expanded now: the trap that is set now
trap "sem_cleanup; ${sem__trap#-}" EXIT

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

# Asks, and waits with that function if there is one. Status 3 is that of an acquire that has no time left.
sem__acquire() { # WAIT NAME LIMIT LEASE_MS [TIMEOUT_MS]
    local IFS=$' \t\n' sem__until='' status=0 id
    sem__check "${2:-}" "${3:-}" "${4:-}" "${5:-}" || return $?
    if [ -n "${5:-}" ]; then
        sem__now
        sem__until=$((sem__now + $5))
    fi
    # Each ID has a client of its own, and so a channel: what comes there is about nothing else.
    sem__random
    sem__client=$sem__host.$BASHPID.${sem__random:16}
    sem__random
    id=P:$sem__client:1:$4:$sem__random
    # From here on it is given back when the script ends.
    sem__names[$id]=$2
    # Most of the time nobody waits. Then there is no need to listen.
    sem__ask "$id" "$3" "$4" try || status=$?
    if [ "$status" = 1 ] && [ -n "$1" ]; then
        status=0
        "$1" "$id" "$3" "$4" || status=$?
        sem__unlisten
    elif [ "$status" = 1 ]; then
        unset 'sem__names[$id]' # Nothing is left of it.
        return 1
    fi
    if [ "$status" = 0 ]; then
        # shellcheck disable=SC2034 # for the caller
        SEM_ID=$id
    else
        sem__give_up "$id"
        ((status != 3)) || status=1
    fi
    return "$status"
}

# Gives back what nobody wants. What counts is the error before; where this fails it ends by itself.
sem__give_up() { # ID
    sem_release "$1" || true
    unset 'sem__names[$1]' 'sem__tried[$1]'
}

# While there is more to do than the server does in one call.
sem__serve() { # NAME [MS]
    while ((sem__reply[1] == 0)); do
        sem__call "${2:-$SEM_PATIENCE}" wake "$1" || return $?
    done
}

# The same after an answer that is good, whatever comes of this. So it is not repeated, either: whoever
# waits calls wake, too.
sem__serve_others() { # NAME
    sem__serve "$1" 0 || true
}

# Asks until the answer is in time. Answers 0 when the permit was granted, 1 when it was refused or
# is queued.
sem__ask() { # ID LIMIT LEASE_MS PLACE
    local name=${sem__names[$1]} kind=declare give_up end token code
    [ "${sem__declared[$name]:-}" != "$2" ] || kind=declare_if_unset
    sem__now
    give_up=$((sem__now + SEM_PATIENCE))
    while :; do
        sem__call "$SEM_PATIENCE" acquire "$name" "$kind" "$2" "$SEM_HEARTBEAT_TIMEOUT" "$1" "$4" || return $?
        if [ $kind = declare ] && ((sem__reply[2] >= 0 && sem__reply[2] != $2)); then
            echo "semaphore: the limit of $name was declared as ${sem__reply[2]}, now as $2" >&2
        fi
        kind=declare_if_unset sem__declared[$name]=$2
        # 10 ms less, as this clock counts in steps of that.
        end=$((sem__sent + $3 - 10)) token=${sem__reply[4]} code=${sem__reply[3]}
        ((code != 2)) || return 1
        if ((code == 0)); then
            ((sem__reply[1] == 0)) || return 1
            sem__serve "$name" || return $?
            continue # One may be free now.
        fi
        sem__serve_others "$name"
        sem__now
        if ((sem__now < end)); then
            sem__ends[$1]=$end SEM_TOKEN=$token
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
    local channel=sem:wake:$sem__client place=wait queued asked ask_at wake_at next status
    while :; do
        # After a failover calls may reach another server than the one at which it listens.
        [ -z "$sem__listener" ] || sem__is_heard "$channel" || sem__unlisten
        # Who is not heard listening when its turn comes is taken for gone. So listen first, ask then.
        [ -n "$sem__listener" ] || sem__listen_again "$channel" || return $?
        status=0
        sem__ask "$id" "$limit" "$lease" "$place" || status=$?
        [ "$status" = 1 ] || return "$status"
        queued=${sem__reply[0]} place=${sem__reply[4]} asked=$sem__sent
        ask_at=$((asked + SEM_HEARTBEAT_TIMEOUT / 3))
        sem__plan_wake || return $?
        while :; do
            next=$wake_at
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
            elif ((sem__now >= ask_at)); then
                break
            elif ((sem__now >= wake_at)); then
                sem__call "$SEM_PATIENCE" wake "$name" || return $?
                sem__plan_wake || return $?
            fi
        done
    done
}

# When the server says, which chooses who calls wake, or when it is time to ask again.
sem__plan_wake() {
    sem__serve "$name" || return $?
    sem__now
    # 10 ms more, as this clock counts in steps of that.
    wake_at=$((sem__now + sem__reply[1] + 10))
    ((sem__reply[1] >= 0 && wake_at < ask_at)) || wake_at=$ask_at
}

# Sets sem__token and sem__end to what the line of sem__hear says about a request. Answers 1 if it
# says nothing about it, or is nothing that a script sends. Gives back what else this client got.
sem__read_message() { # NAME ID
    local found id token end status=1
    found=$(jq -r --arg name "$1" --arg own "P:$sem__client:" '
        def is_id: test("^[PSN]:[A-Za-z0-9._-]{1,100}(:[1-9][0-9]{0,9}){2}:[A-Za-z0-9_-]{16,64}$")
            and (split(":") | (.[2] | tonumber) <= 4294967295 and (.[3] | tonumber) <= 604800000);
        select(.[0] == "message") | .[2]
        # What is not UTF-8 has become U+FFFD, which only a name may have.
        | select(utf8bytelength <= 1048576) | split("\n") | select(.[0] == $name) | .[1:]
        | select(any(contains("\ufffd")) | not) | map(split(" "))
        | select(all(length == 3 and (.[0] | is_id) and all(.[1:][];
            test("^[0-9]{1,16}$") and tonumber <= 9007199254740991)))
        | .[] | select(.[0] | startswith($own)) | "\(.[0]) \(.[1] | tonumber) \(.[2] | tonumber)"
    ' <<<"$sem__line" 2>/dev/null) || return 1 # not even JSON
    while read -r id token end; do
        if [ "$id" = "$2" ]; then
            sem__token=$token sem__end=$end status=0
        elif ((token > 0)); then
            sem__names[$id]=$1
            sem__give_up "$id"
        fi
    done <<<"$found"
    return $status
}
