# shellcheck shell=bash
#
# A thin client of redis-semaphore, for "source". README.md describes its use.
#
# Functions return 0 for yes, 1 for no (no permit, timeout, lost), and 2 after an error, which they print
# on standard error. Names that begin with sem__ are private.

# shellcheck source-path=SCRIPTDIR source=redis.bash
source "$(dirname -- "${BASH_SOURCE[0]}")/redis.bash" || return $?

SEM_HEARTBEAT_TIMEOUT=15000 # ms: the server skips requests of a client that is silent for longer
SEM_GIVE_BACK=2000 # ms: how long the release of a request without a permit is retried

SEM_ID=            # the ID of the newest permit
SEM_FENCING_TOKEN= # its fencing token

sem__host=$(LC_ALL=C && echo "${HOSTNAME//[^A-Za-z0-9._-]/-}")
declare -gA sem__declared=() # semaphore -> the limit that this process declared
declare -gA sem__names=()    # ID of each permit and request -> its semaphore
declare -gA sem__ends=()     # ID of each permit -> expiry of its lease, on the clock of sem__now
declare -gA sem__tried=()    # ID -> 1: an earlier release failed, but may have reached the server

# sem_acquire NAME LIMIT LEASE_MS [TIMEOUT_MS]: waits for a permit, and sets SEM_ID and SEM_FENCING_TOKEN.
# Returns 1 if none is granted in time.
sem_acquire() { sem__acquire sem__wait "$@"; }

# sem_try_acquire NAME LIMIT LEASE_MS: does the same without waiting. Returns 1 if no permit is free, or if
# other requests wait.
sem_try_acquire() { sem__acquire '' "${@:1:3}"; }

# sem_release ID: releases a permit. Returns 1 if it was already lost.
sem_release() {
    local IFS=$' \t\n' sem__until='' id=${1:-} name='' left patience=$SEM_GIVE_BACK held repeated
    [ -z "$id" ] || name=${sem__names[$id]:-}
    if [ -z "$name" ]; then
        echo "semaphore: '$id' is not held" >&2
        return 2
    fi
    sem__now
    left=$((${sem__ends[$id]:-0} - sem__now))
    # Retries end when the lease has expired.
    [ -z "${sem__ends[$id]:-}" ] || patience=$((left < SEM_PATIENCE ? left : SEM_PATIENCE))
    repeated=${sem__tried[$id]:-0} sem__tried[$id]=1
    sem__call "$patience" release "$name" return "$id" || return $?
    # Single quotes, because unset expands the index itself. Double quotes would expand it twice, and run a
    # command that an ID contains.
    unset 'sem__names[$id]' 'sem__ends[$id]' 'sem__tried[$id]'
    # If a reply was lost, the retry returns "unknown", because the first attempt released the permit.
    held=$((left > 0 && (sem__reply[2] != 0 || sem__repeated || repeated)))
    sem__serve_others "$name"
    [ "$held" != 0 ] || return 1
}

# sem_expires_in ID: prints for how many ms the permit is certainly held. 0: it may be lost.
sem_expires_in() {
    local IFS=$' \t\n' left=0
    sem__now
    [ -z "${1:-}" ] || left=$((${sem__ends[$1]:-0} - sem__now))
    echo $((left > 0 ? left : 0))
}

# Releases all permits and requests of this shell, and keeps the exit status.
sem_cleanup() {
    local status=$? id IFS=$' \t\n'
    sem__unlisten
    for id in "${!sem__names[@]}"; do
        sem_release "$id" || true
    done
    return "$status"
}

# If the script sets this trap later, its trap must call sem_cleanup. A subshell shows the traps of its parent
# shell until it sets a trap itself, even one for no signal.
trap - SEM_NONE 2>/dev/null || true
eval "sem__trap=($(trap -p EXIT))" # trap -- 'the earlier trap' EXIT
sem__trap=${sem__trap[2]:-}
# shellcheck disable=SC2064 # expanded now, with the earlier trap
trap "sem_cleanup; ${sem__trap#-}" EXIT

# Checks all arguments before the first call. If Bash calculates with a text that is no number, it leaves all
# functions and continues with the next line of the script, without an error.
sem__check() { # NAME LIMIT LEASE_MS TIMEOUT_MS
    local LC_ALL=C # bytes, not characters
    if [[ ${#1} -lt 1 || ${#1} -gt 512 || $1 == *[{}]* || $1 == *[[:cntrl:]]* ]] ||
        { [[ $1 == *[![:ascii:]]* ]] && ! iconv -f UTF-8 -t UTF-8 <<<"$1" >/dev/null 2>&1; }; then
        echo 'semaphore: a name must have 1 to 512 bytes of UTF-8, without braces and control characters' >&2
        return 2
    fi
    sem__check_number 'a limit' "$2" 0 4294967295 || return $?
    sem__check_number 'a lease' "$3" 1 604800000 || return $?
    [ -z "$4" ] || sem__check_number 'a timeout' "$4" 0 9007199254740991
}

sem__check_number() { # WHAT NUMBER FROM TO
    if ! [[ $2 =~ ^(0|[1-9][0-9]{0,15})$ ]] || (($2 < $3 || $2 > $4)); then
        echo "semaphore: $1 must be a whole number from $3 to $4, not '$2'" >&2
        return 2
    fi
}

# Sends a request, and waits with the function WAIT if it is not empty. Status 3 means that the time is over.
sem__acquire() { # WAIT NAME LIMIT LEASE_MS [TIMEOUT_MS]
    local IFS=$' \t\n' sem__until='' status=0 id
    sem__check "${2:-}" "${3:-}" "${4:-}" "${5:-}" || return $?
    if [ -n "${5:-}" ]; then
        sem__now
        sem__until=$((sem__now + $5))
    fi
    # Each request has its own client and channel, so its messages concern no other permit.
    sem__random
    sem__client=$sem__host.$BASHPID.${sem__random:16}
    sem__random
    id=P:$sem__client:1:$4:$sem__random
    # From here on, the end of the script releases the request.
    sem__names[$id]=$2
    # Usually a permit is free. Then no subscription is needed.
    sem__ask "$id" "$3" "$4" try || status=$?
    if [ "$status" = 1 ] && [ -n "$1" ]; then
        status=0
        "$1" "$id" "$3" "$4" || status=$?
        sem__unlisten
    elif [ "$status" = 1 ]; then
        unset 'sem__names[$id]' # The request is not queued.
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

# Releases a request or permit without a caller, and ignores errors. If this fails, the request or permit expires.
sem__give_up() { # ID
    sem_release "$1" || true
    unset 'sem__names[$1]' 'sem__tried[$1]'
}

# Calls wake until the server has no more work.
sem__serve() { # NAME [MS]
    while ((sem__reply[1] == 0)); do
        sem__call "${2:-$SEM_PATIENCE}" wake "$1" || return $?
    done
}

# Does the same after a successful reply, and ignores errors. Nothing is retried, because the waiters call wake,
# too.
sem__serve_others() { # NAME
    sem__serve "$1" 0 || true
}

# Sends a request until the reply is in time. Returns 0 if a permit was granted, and 1 if none was granted or
# the request is queued.
sem__ask() { # ID LIMIT LEASE_MS PLACE
    local name=${sem__names[$1]} kind=declare give_up end token code
    [ "${sem__declared[$name]:-}" != "$2" ] || kind=declare_if_unset
    sem__now
    give_up=$((sem__now + SEM_PATIENCE))
    while :; do
        sem__call "$SEM_PATIENCE" acquire "$name" "$kind" "$2" "$SEM_HEARTBEAT_TIMEOUT" "$1" "$4" || return $?
        if [ $kind = declare ] && ((sem__reply[2] >= 0 && sem__reply[2] != $2)); then
            echo "semaphore $name: the limit $2 replaces the declared limit ${sem__reply[2]}" >&2
        fi
        kind=declare_if_unset sem__declared[$name]=$2
        # 10 ms less, because this clock counts in steps of 10 ms.
        end=$((sem__sent + $3 - 10)) token=${sem__reply[4]} code=${sem__reply[3]}
        ((code != 2)) || return 1
        if ((code == 0)); then
            ((sem__reply[1] == 0)) || return 1
            sem__serve "$name" || return $?
            continue # A permit may be free now.
        fi
        sem__serve_others "$name"
        sem__now
        if ((sem__now < end)); then
            sem__ends[$1]=$end SEM_FENCING_TOKEN=$token
            return 0
        elif ((sem__now >= ${sem__until:-sem__now + 1})); then
            return 3
        elif ((sem__now >= give_up)); then
            echo "semaphore $name: the lease of $3 ms expired before the reply arrived: use a longer lease" >&2
            return 2
        fi # The retry restarts the lease.
    done
}

# Waits in the queue. Returns 3 if the time is over.
sem__wait() { # ID LIMIT LEASE_MS
    local id=$1 limit=$2 lease=$3 name=${sem__names[$1]}
    local channel=sem:wake:$sem__client place=wait queued asked ask_at wake_at next status
    while :; do
        # After a failover, calls may reach another server than the subscription.
        [ -z "$sem__listener" ] || sem__is_heard "$channel" || sem__unlisten
        # The server skips requests of a client that is not subscribed. So this subscribes before it queues.
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
            # An earlier grant was lost before the server returned "queued", so its message is stale.
            if [ "$status" = 0 ] && sem__read_message "$name" "$id" &&
                ((sem__token == 0 || sem__end - lease >= queued)); then
                # Another acquire returns why the request was removed. If half of the lease may be over,
                # another acquire restarts it.
                sem__now
                ((sem__token > 0 && sem__now - asked < lease / 2 - 10)) || break
                # shellcheck disable=SC2034 # for the caller
                sem__ends[$id]=$((asked + lease - 10)) SEM_FENCING_TOKEN=$sem__token
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

# Sets wake_at to the time that the server chose for this client's wake, or to the time of the heartbeat.
sem__plan_wake() {
    sem__serve "$name" || return $?
    sem__now
    # 10 ms more, because this clock counts in steps of 10 ms.
    wake_at=$((sem__now + sem__reply[1] + 10))
    ((sem__reply[1] >= 0 && wake_at < ask_at)) || wake_at=$ask_at
}

# Sets sem__token and sem__end to the token and the expiry of a request in the message sem__line. Returns 1 if
# the message does not contain the request, or was not sent by a script. Releases other permits that this
# client was granted.
sem__read_message() { # NAME ID
    local found id token end status=1
    found=$(jq -r --arg name "$1" --arg own "P:$sem__client:" '
        def is_id: test("^[PSN]:[A-Za-z0-9._-]{1,100}(:[1-9][0-9]{0,9}){2}:[A-Za-z0-9_-]{16,64}$")
            and (split(":") | (.[2] | tonumber) <= 4294967295 and (.[3] | tonumber) <= 604800000);
        select(.[0] == "message") | .[2]
        # jq replaces invalid UTF-8 by U+FFFD, which only a name may contain.
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
