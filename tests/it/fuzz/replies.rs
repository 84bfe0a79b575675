//! Checks that a reply has the layout described in the head of its script.

use redis::Value;

use super::calls::Call;
use super::rules::ensure;

/// The parts of a correct reply that the rules need.
#[derive(Debug, Default)]
pub struct Response {
    /// The server's time.
    pub now: i64,
    /// The value -1 may also mean that the reply contains no `wake_in`.
    pub wake_in: i64,
    pub tokens: Vec<i64>,
    pub tickets: Vec<i64>,
}

pub fn read(call: &Call, reply: &Value) -> Result<Response, String> {
    if call.script == "probe" {
        let failed: Vec<String> =
            redis::from_redis_value(reply.clone()).map_err(|e| e.to_string())?;
        ensure(failed.len().is_multiple_of(2), || {
            "probe returns names and errors in pairs".to_owned()
        })?;
        return Ok(Response { wake_in: -1, ..Response::default() });
    }
    if call.script == "inspect" {
        return inspection(call, reply);
    }
    let integers = integers(reply)?;
    let [now, wake_in, responses @ ..] = &*integers else {
        return Err("fewer than two integers".to_owned());
    };
    ensure(*wake_in >= -1, || format!("wake_in is {wake_in}"))?;
    let mut response = Response { now: *now, wake_in: *wake_in, ..Response::default() };
    match call.script {
        "acquire" => acquired(call, responses, &mut response)?,
        "release" => {
            let (count, all) = (call.arguments.len() - 1, responses == [3]);
            let each = responses.len() == count && responses.iter().all(|n| (0..=2).contains(n));
            ensure(if all { count > 1 } else { each }, || format!("for {count}: {responses:?}"))?;
        }
        "refresh" => {
            let count = call.arguments.len() / 2;
            let fits =
                responses.len() == count && responses.iter().all(|end| *end == 0 || end > now);
            ensure(fits, || format!("for {count}: {responses:?}"))?;
        }
        "wake" => {
            ensure(responses.len() == 1 && responses[0] >= 0, || format!("{responses:?}"))?;
        }
        "limit" => {
            let is_limit = |n: &i64| (-1..=4_294_967_295).contains(n);
            ensure(responses.len() == 4 && responses.iter().all(is_limit), || {
                format!("{responses:?}")
            })?;
        }
        other => panic!("{other} is not known here"),
    }
    Ok(response)
}

fn integers(reply: &Value) -> Result<Vec<i64>, String> {
    let Value::Array(items) = reply else {
        return Err("not an array".to_owned());
    };
    let integer = |item: &Value| match item {
        Value::Int(integer) => Ok(*integer),
        other => Err(format!("{other:?} is not an integer")),
    };
    items.iter().map(integer).collect()
}

fn acquired(call: &Call, responses: &[i64], response: &mut Response) -> Result<(), String> {
    let [declared, responses @ ..] = responses else { return Err("too short".to_owned()) };
    ensure((-1..=4_294_967_295).contains(declared), || format!("declared is {declared}"))?;
    let requests: Vec<_> = call.arguments[3..].chunks(2).collect();
    if let [3, token, end] = *responses
        && requests.len() > 1
    {
        ensure(token > 0 && end > response.now, || format!("all: {token} {end}"))?;
        response.tokens = (token..).take(requests.len()).collect();
        return Ok(());
    }
    ensure(responses.len() == 3 * requests.len(), || format!("{} integers", responses.len()))?;
    for (request, three) in requests.iter().zip(responses.chunks(3)) {
        match *three {
            [1, token, end] if token > 0 && end > response.now => response.tokens.push(token),
            [2, ticket, position] if ticket > 0 && position > 0 => response.tickets.push(ticket),
            [0, 0, 0] if request[1] == b"try" => {}
            _ => return Err(format!("{three:?} is no reply to {request:?}")),
        }
    }
    Ok(())
}

fn inspection(call: &Call, reply: &Value) -> Result<Response, String> {
    let Value::Array(items) = reply else {
        return Err("not an array".to_owned());
    };
    let lists = if call.arguments.len() == 4 { 2 } else { 3 };
    ensure(items.len() == 8 + lists, || format!("{} items", items.len()))?;
    let numbers = integers(&Value::Array(items[..8].to_vec()))?;
    ensure(numbers[4..].iter().all(|n| *n >= 0), || format!("{numbers:?}"))?;
    for (list, count, size) in [(8, 1, 2), (9, 3, 3)] {
        let Value::Array(entries) = &items[list] else { return Err("no list".to_owned()) };
        let most: usize = String::from_utf8_lossy(&call.arguments[count]).parse().unwrap();
        ensure(entries.len() <= most * size, || format!("{} parts", entries.len()))?;
        for entry in entries.chunks(size) {
            let fits = matches!(entry, [Value::BulkString(id), _, ..] if !id.is_empty());
            ensure(fits && entry.len() == size, || format!("{entry:?}"))?;
            integers(&Value::Array(entry[1..].to_vec()))?;
        }
    }
    let groups = match items.get(10) {
        Some(Value::Array(groups)) => match &groups[..] {
            [Value::Int(0..), Value::Int(0..), Value::Array(groups)] => groups.len(),
            _ => return Err(format!("{groups:?}")),
        },
        _ => 0,
    };
    ensure(groups % 6 == 0, || format!("{groups} values of groups"))?;
    Ok(Response { now: numbers[0], wake_in: -1, ..Response::default() })
}
