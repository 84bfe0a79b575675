//! Expectations of a vector about a reply, a key or a message: see `lua/vectors/README.md`.

use std::collections::HashMap;

use serde_json::Value as Json;

/// The variables of a case.
#[derive(Debug)]
pub struct Variables {
    texts: HashMap<String, String>,
    numbers: HashMap<String, i64>,
}

/// A value from the server: an integer, a text, or a list of values.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    Integer(i64),
    Text(String),
    List(Vec<Found>),
}

impl From<redis::Value> for Found {
    fn from(value: redis::Value) -> Self {
        match value {
            redis::Value::Int(integer) => Self::Integer(integer),
            redis::Value::Array(list) => Self::List(list.into_iter().map(Self::from).collect()),
            other => Self::Text(redis::from_redis_value(other).unwrap()),
        }
    }
}

impl Found {
    pub fn words(text: &str) -> Self {
        Self::List(text.split(' ').map(|id| Self::Text(id.to_owned())).collect())
    }

    fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(integer) => Some(*integer),
            Self::Text(text) => text.parse().ok(),
            Self::List(_) => None,
        }
    }
}

impl Variables {
    pub fn new(texts: HashMap<String, String>) -> Self {
        Self { texts, numbers: HashMap::new() }
    }

    pub fn number(&self, name: &str) -> i64 {
        *self.numbers.get(name).unwrap_or_else(|| panic!("no number {name} was saved"))
    }

    pub fn text(&self, expression: &Json) -> String {
        match (expression.as_str(), expression["is"].as_str()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(name)) if self.texts.contains_key(name) => self.texts[name].clone(),
            (None, Some(name)) => (self.number(name) + plus(expression)).to_string(),
            _ => panic!("{expression} is no argument"),
        }
    }

    pub fn check(&mut self, expected: &Json, found: &Found) -> Result<(), String> {
        let is_met = match (expected, found) {
            (Json::Array(expected), Found::List(found)) => {
                expected.len() == found.len()
                    && expected.iter().zip(found).all(|(part, its)| self.check(part, its).is_ok())
            }
            (Json::Array(_), _) => false,
            (Json::String(expected), Found::Text(text)) => text == expected,
            (Json::Number(expected), _) => found.integer() == expected.as_i64(),
            (Json::Object(_), Found::Text(text)) if self.texts.contains_key(&name(expected)) => {
                *text == self.texts[&name(expected)]
            }
            (Json::Object(_), _) => {
                found.integer().is_some_and(|found| self.accepts(expected, found))
            }
            _ => false,
        };
        if is_met { Ok(()) } else { Err(format!("{found:?}, expected {expected} of {self:?}")) }
    }

    fn accepts(&mut self, expected: &Json, found: i64) -> bool {
        let fields = expected.as_object().unwrap();
        let is_met = fields.iter().all(|(field, value)| match field.as_str() {
            "is" => found == self.number(value.as_str().unwrap()) + plus(expected),
            "above" => found > self.number(value.as_str().unwrap()),
            "from" => found >= value.as_i64().unwrap(),
            "to" => found <= value.as_i64().unwrap(),
            "plus" | "save" => true,
            other => panic!("{other} means nothing in {expected}"),
        });
        if let Some(name) = expected["save"].as_str() {
            self.numbers.insert(name.to_owned(), found);
        }
        is_met
    }
}

fn name(expression: &Json) -> String {
    expression["is"].as_str().unwrap_or_default().to_owned()
}

fn plus(expression: &Json) -> i64 {
    expression["plus"].as_i64().unwrap_or(0)
}
