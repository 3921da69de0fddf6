//! Parses mongod's YAML config file to flat names: nested mappings and dotted names are equivalent.

use serde_json::{Map, Value};

use super::{
    ConfigError,
    options::{self, Given, Kind},
};

pub(super) fn parse(text: &str) -> Result<Given, ConfigError> {
    let mut given = Given::default();
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(given);
    }
    let root: Value = serde_saphyr::from_str(text).map_err(|err| {
        let text = err.to_string();
        ConfigError::Yaml(text.lines().next().unwrap_or_default().trim().to_owned())
    })?;
    match root {
        Value::Null => {}
        Value::Object(root) => flatten("", &root, &mut given),
        _ => return Err(ConfigError::Yaml("the file must be a mapping of options".to_owned())),
    }
    Ok(given)
}

fn flatten(prefix: &str, map: &Map<String, Value>, given: &mut Given) {
    for (name, value) in map {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match (options::by_key(&key), value) {
            (Some(opt), Value::Object(pairs)) if opt.kind == Kind::Pairs => {
                for (name, value) in pairs {
                    match scalar(&key, value) {
                        Ok(text) => given.put_parameter(name, &text),
                        Err(wrong) => given.wrong.push(wrong),
                    }
                }
            }
            (_, Value::Object(inner)) => flatten(&key, inner, given),
            // An empty section.
            (None, Value::Null) if is_section(&key) => {}
            // Options that exist only on the command line have no dot in their name.
            (Some(opt), value) if key.contains('.') => match scalar(&key, value) {
                Ok(text) => given.put(opt, &key, &text),
                Err(wrong) => given.wrong.push(wrong),
            },
            _ => given.wrong.push(ConfigError::UnknownKey(key)),
        }
    }
}

fn is_section(key: &str) -> bool {
    options::OPTIONS
        .iter()
        .any(|opt| opt.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

fn scalar(key: &str, value: &Value) -> Result<String, ConfigError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Null => Ok(String::new()),
        Value::Array(_) | Value::Object(_) => Err(ConfigError::Type {
            name: key.to_owned(),
            kind: "a value",
            reason: "Expected a single value.",
        }),
    }
}
