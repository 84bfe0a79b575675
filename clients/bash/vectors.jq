# The parts of vectors.bash that process JSON.

# Returns the first variables of a case.
def variables($name):
    {name: $name, channel: "sem:wake:\($name)", sharded: "sem:{\($name)}:wake:\($name)"}
    + ({permits, queue, clients, state} | with_entries(.value = "sem:{\($name)}:\(.key)"));

# Returns the steps of a case as operations, one for each call of redis-cli: the kind, the words, and the
# expected result. A word that begins with \u0001 names a variable that an earlier step saves, and a number to
# add to it.
def operations($v):
    def words: map(if type == "string" then . elif .is | in($v) then $v[.is]
        else "\u0001\(.is) \(.plus // 0)" end);
    def expects($do; $words; $how; $expected):
        {do: $do, words: $words, how: $how, expected: $expected};
    [.steps | to_entries[] | (.key + 1) as $number | .value
        | if .call then (.with_keys // ["permits", "queue", "clients", "state"] | map($v[.])) as $keys
            | expects("eval"; [.call, "\($keys | length)"] + $keys + (.args | words);
                if has("error") then "error" else "reply" end; if has("error") then .error else .reply end)
          elif .command then
            expects("redis"; .command | words; if has("reply") then "reply" else "no error" end; .reply)
          elif .keys then .keys | to_entries[]
            | expects("redis"; if .key == "state" then ["HGETALL", $v.state]
                else ["ZRANGE", $v[.key], "0", "-1", "WITHSCORES"] end; "members"; .value)
          elif .expires then .expires | to_entries[]
            | expects("redis"; ["PTTL", $v[.key]]; "reply"; .value)
          elif .until then expects("wait"; ["\u0001\(.until) 0"]; "no error"; null)
          elif .listen then
            expects("listen"; [if .sharded then "SSUBSCRIBE" else "SUBSCRIBE" end, $v[.listen]]; "no error"; null)
          elif .message then expects("hear"; []; "message"; .message)
          else error("a step of an unknown kind: \(tojson)") end
        | .number = $number];

# Fails unless the result is as expected. Input and output are the variables. The output contains the newly saved
# ones, too.
def expect($expected; $found):
    def mismatch: error("found \($found | tojson), expected \($expected | tojson)");
    if $expected | type == "array" then
        if ($found | type) != "array" or ($found | length) != ($expected | length) then mismatch
        else reduce range($expected | length) as $i (.; expect($expected[$i]; $found[$i])) end
    elif $expected | type == "string" then
        if $found == $expected then . else mismatch end
    elif ($expected | type == "object") and (.[$expected.is // ""] | type) == "string" then
        if $found == .[$expected.is] then . else mismatch end
    else
        ($found | if type == "string" and test("^-?[0-9]+$") then tonumber else . end) as $n
        | if ($n | type) != "number" then mismatch
          elif $expected | type == "number" then if $n == $expected then . else mismatch end
          elif ($expected.is != null and $n != .[$expected.is] + ($expected.plus // 0))
            or ($expected.above != null and $n <= .[$expected.above])
            or ($expected.from != null and $n < $expected.from)
            or ($expected.to != null and $n > $expected.to)
          then mismatch
          elif $expected.save != null then .[$expected.save] = $n
          else . end
    end;

# Does the same for an object, which must have exactly these members. Redis returns a list of names and values.
def expect_members($expected; $list):
    ([range(0; $list | length; 2) as $i | {($list[$i]): $list[$i + 1]}] | add // {}) as $found
    | if ($expected | keys) != ($found | keys)
      then error("found \($found | tojson), expected \($expected | tojson)")
      else reduce ($expected | keys[]) as $key (.; expect($expected[$key]; $found[$key])) end;

# Checks all operations. Input: one line of JSON, or an error, for each operation. Output: the variables.
def check($operations; $variables):
    [., $operations] | [transpose[] | select(.[0] != null)]
    | reduce .[] as [$line, $operation] ($variables;
        . as $before
        | $operation.expected as $expected
        | try (
            if $operation.how == "error" then
                if $line | startswith("error \($expected)") then . else error("found \($line)") end
            elif $line | startswith("error ") then error("found \($line)")
            else ($line | fromjson) as $found
                | if $operation.how == "no error" then .
                  elif $operation.how == "members" then expect_members($expected; $found)
                  elif $operation.how == "message" then
                    expect($expected; $found[2] | split("\n") | map(split(" ")))
                  else expect($expected; $found) end
            end
        ) catch error("step \($operation.number): \(.)\n  variables: \($before | tojson)"));
