#!/usr/bin/env bash
# shellcheck source-path=SCRIPTDIR disable=SC2016 # programs for jq are in single quotes
#
# vectors.bash [FILE...]: runs these files, or all files of lua/vectors, on the server of REDIS_URL.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=semaphore.bash
source "$here/semaphore.bash"

# Some steps must follow each other within 50 ms, so this does little between them. It stores the replies, and
# checks them when a later step needs a saved variable, or at the end.
run_case() { # CASE
    local -A saved=()
    local variables operations words word found=() name variable plus i=0 next
    sem__random
    name=vector-$sem__random
    variables=$(vectors_jq -n --arg name "$name" 'variables($name)') || return
    operations=$(vectors_jq --argjson v "$variables" 'operations($v)' <<<"${1//@/$name}") || return
    mapfile -d '' -t words < <(
        jq -j '.[] | .do, (.words | length), .words[] | "\(.)\u0000"' <<<"$operations"
    )
    while ((i < ${#words[@]})); do
        next=$((i + 2 + words[i + 1]))
        for ((word = i + 2; word < next; word++)); do
            if [[ ${words[word]} == $'\1'* ]]; then
                read -r variable plus <<<"${words[word]#?}"
                [ -n "${saved[$variable]:-}" ] || look_at_found || return
                words[word]=$((${saved[$variable]} + plus))
            fi
        done
        if "do_${words[i]}" "${words[@]:i+2:words[i+1]}"; then
            found+=("$sem_answer")
        else
            found+=("error ${sem_answer//$'\n'/ }")
        fi
        i=$next
    done
    sem__unlisten
    do_redis DEL "sem:{$name}:"{permits,queue,clients,state}
    look_at_found
}

# Checks the stored replies. If one is not as expected, this prints it and fails.
look_at_found() {
    local result name value
    result=$(printf '%s\n' "${found[@]}" | vectors_jq -nRr --argjson operations "$operations" \
        --argjson v "$variables" '[inputs] | check($operations; $v) | to_entries[] | "\(.key) \(.value)"' 2>&1) || {
        echo "$result"
        return 1
    }
    while read -r name value; do
        saved[$name]=$value
    done <<<"$result"
}

# Each kind of operation sets sem_answer to JSON, or to an error.
do_eval() { sem_eval "$@"; }
do_redis() { sem_answer=$(sem_redis "$@" 2>&1); }
do_listen() {
    sem_listen "$@" || return
    sem_answer=null
}
do_hear() {
    sem__now
    sem_answer='no message arrived'
    sem__hear $((sem__now + 5000)) || return
    sem_answer=$sem__line
}
do_wait() { # TIME: of the server's clock
    local left
    while do_redis TIME; do
        [[ $sem_answer =~ ([0-9]+)\",\"([0-9]+) ]] || return
        left=$(($1 - BASH_REMATCH[1] * 1000 - 10#${BASH_REMATCH[2]} / 1000))
        sem_answer=null
        ((left > 0)) || return 0
        printf -v left '0.%03d' "$left" # Less than a second is left.
        sleep "$left"
    done
}

vectors_jq() { jq -c -L "$here" "${@:1:$#-1}" "include \"vectors\"; ${*: -1}"; }

version=$(sem_redis INFO server | sed -En 's/^redis_version:([0-9]+[.][0-9]+).*/\1/p')
[ $# -gt 0 ] || set -- "$here"/../../lua/vectors/*.json
passed=0 failed=0
for file; do
    mapfile -t cases < <(jq -c --arg version "$version" '
        def number: split(".") | map(tonumber);
        .cases[] | select((.needs // "0" | number) <= ($version | number))' "$file")
    for case in "${cases[@]}"; do
        # With retries: on a busy machine, 300 ms may be too short for three calls of several processes each.
        for ((tries = 1; tries <= 5; tries++)); do
            if report=$(run_case "$case"); then break; fi
        done
        if ((tries <= 5)); then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "${file##*/}: $(jq -r .name <<<"$case"): $report" >&2
        fi
    done
done
# If a client changed the text of a script, it would send the whole text with each call.
mapfile -t sha1s < <(jq -r '.scripts[].sha1' "$SEM_MANIFEST")
if [[ $(sem_redis SCRIPT EXISTS "${sha1s[@]}") == *0* ]]; then
    failed=$((failed + 1))
    echo 'the server does not know all scripts of the manifest' >&2
fi
echo "$passed cases passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
