//! Applies a model's `filters` to the JSON body of a request: removes and sets parameters.
//!
//! Values that no filter touches stay as the client wrote them.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use plimsoll_config::RequestFilters;
use plimsoll_scheduler::ModelId;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::body::Received;
use super::model_key::ModelKey;
use super::model_service::{ModelService, RequestRouter};
use super::naming::name_of;
use super::ollama::off_thread;
use super::problem::HttpProblem;
use super::proxy::WrittenBytes;
use super::rope::Rope;
use super::server::HttpServer;

impl<H: RequestRouter> HttpServer<H> {
    /// Applies the model's filters to a body, and returns the place of the model's name in it then.
    pub(super) async fn filter(
        &self,
        head: &Parts,
        model: ModelId,
        received: &mut Received,
        named: Option<(ModelKey, WrittenBytes)>,
    ) -> Result<Option<(ModelKey, WrittenBytes)>, HttpProblem> {
        let is_form = named.as_ref().is_some_and(|(_, written)| *written == WrittenBytes::Plain);
        let filters = self.service.local().filters(model).filter(|_| !is_form && !received.rope.is_empty());
        let Some(filters) = filters else { return Ok(named) };
        let length = received.rope.len();
        let name = name_of(head, named.as_ref().map(|(named, _)| named)).unwrap_or_default().into_owned();
        if !filters.concerns(&name) {
            return Ok(named);
        }
        let rope = received.rope.clone();
        let done = off_thread(length, move || filtered(&rope.copy(0..length), &filters, &name)).await?;
        // The engine refuses a body that is no JSON object.
        let Some(FilteredBody { body, model }) = done else { return Ok(named) };
        received.replace(Rope::from(Bytes::from(body)), &self.settings.limits)?;
        Ok(named.zip(model).map(|((key, written), place)| (ModelKey { place, ..key }, written)))
    }
}

/// A body after its filters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilteredBody {
    pub(super) body: Vec<u8>,
    /// The place of the model's name, quotes included.
    pub(super) model: Option<Range<usize>>,
}

/// The body of a request that names the model `name`; `None` if it is no JSON object.
pub(super) fn filtered(body: &[u8], filters: &Arc<RequestFilters>, name: &str) -> Option<FilteredBody> {
    let Pairs(mut pairs) = serde_json::from_slice(body).ok()?;
    for path in &filters.strip {
        change(&mut pairs, path, None);
    }
    for (path, value) in filters.defaults_for(name) {
        if !has(&pairs, path) {
            change(&mut pairs, path, Some(value));
        }
    }
    if let Some(system) = filters.system_for(name) {
        begin_with(&mut pairs, system);
    }
    for (path, value) in filters.set_for(name) {
        change(&mut pairs, path, Some(value));
    }
    let mut out = Vec::with_capacity(body.len());
    let mut model = None;
    for (key, value) in &pairs {
        out.push(if out.is_empty() { b'{' } else { b',' });
        out.extend_from_slice(Value::from(key.as_ref()).to_string().as_bytes());
        out.push(b':');
        let start = out.len();
        out.extend_from_slice(value.as_bytes());
        // Of equal keys the engine takes the last.
        if key == "model" {
            model = value.starts_with('"').then_some(start..out.len());
        }
    }
    out.extend_from_slice(if out.is_empty() { b"{}" } else { b"}" });
    Some(FilteredBody { body: out, model })
}

/// The top level of an object, with values as they are written.
struct Pairs<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some((key, value)) = entries.next_entry::<String, &'de RawValue>()? {
            pairs.push((Cow::Owned(key), Cow::Borrowed(value.get())));
        }
        Ok(Pairs(pairs))
    }
}

fn has(pairs: &[(Cow<'_, str>, Cow<'_, str>)], path: &str) -> bool {
    let mut keys = path.split('.');
    let first = keys.next();
    let Some((_, text)) = pairs.iter().rev().find(|(key, _)| Some(key.as_ref()) == first) else {
        return false;
    };
    let mut keys = keys.peekable();
    // A value of megabytes is not read for a key of the top level.
    if keys.peek().is_none() {
        return text != "null";
    }
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    keys.try_fold(&value, |value, key| value.get(key)).is_some_and(|value| !value.is_null())
}

/// Puts a system message before a conversation that begins with none.
fn begin_with(pairs: &mut [(Cow<'_, str>, Cow<'_, str>)], system: &str) {
    #[derive(serde::Deserialize)]
    struct Message<'a> {
        #[serde(borrow, default)]
        role: Cow<'a, str>,
    }
    let Some((_, text)) = pairs.iter_mut().rev().find(|(key, _)| key == "messages") else { return };
    let Ok(messages) = serde_json::from_str::<Vec<&RawValue>>(text) else { return };
    let first = messages.first().and_then(|first| serde_json::from_str::<Message<'_>>(first.get()).ok());
    if first.is_none_or(|first| matches!(first.role.as_ref(), "system" | "developer")) {
        return;
    }
    let message = serde_json::json!({ "role": "system", "content": system });
    let rest = text.trim_start().strip_prefix('[').unwrap_or_default();
    *text = Cow::Owned(format!("[{message},{rest}"));
}

/// Removes or sets the parameter at a path, whose dots lead into objects.
fn change(pairs: &mut Vec<(Cow<'_, str>, Cow<'_, str>)>, path: &str, to: Option<&Value>) {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let Some(rest) = rest else {
        pairs.retain(|(key, _)| key != first);
        pairs.extend(to.map(|value| (Cow::Owned(first.to_owned()), Cow::Owned(value.to_string()))));
        return;
    };
    let last = pairs.iter_mut().rev().find(|(key, _)| key == first);
    let mut value =
        last.as_ref().and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
    change_within(&mut value, rest, to);
    match last {
        Some((_, text)) => *text = Cow::Owned(value.to_string()),
        None if to.is_some() => pairs.push((Cow::Owned(first.to_owned()), Cow::Owned(value.to_string()))),
        None => {}
    }
}

fn change_within(value: &mut Value, path: &str, to: Option<&Value>) {
    let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
    if to.is_some() && !value.is_object() {
        *value = Value::Object(serde_json::Map::new());
    }
    let Some(object) = value.as_object_mut() else { return };
    match (rest, to) {
        (Some(rest), Some(_)) => change_within(object.entry(key).or_insert(Value::Null), rest, to),
        (Some(rest), None) => {
            object.get_mut(key).into_iter().for_each(|inner| change_within(inner, rest, None))
        }
        (None, Some(set)) => drop(object.insert(key.to_owned(), set.clone())),
        (None, None) => drop(object.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_fuzz::mutants;

    use super::*;

    const FILTERS: &str = "[models.a]\ncmd = 'x ${PORT}'\naliases = ['a:hot']\n\
        [models.a.filters]\nstrip = ['top_k', 'chat_template_kwargs.x', 'model']\nset = {temperature = 0.5, 'extra.deep' = [1]}\n\
        [models.a.filters.set-by-name.\"a:hot\"]\ntemperature = 1.5\nmodel = 'no'\n";

    fn filters() -> Arc<RequestFilters> {
        Arc::clone(&plimsoll_config::parse("p.toml", FILTERS, &|_| None).unwrap().models[0].filters)
    }

    fn text(body: &str, name: &str) -> Option<String> {
        filtered(body.as_bytes(), &filters(), name).map(|done| String::from_utf8(done.body).unwrap())
    }

    #[test]
    fn parameters_are_removed_and_set_and_the_rest_stays_as_it_was() {
        let body = r#"{ "model":"a:hot", "messages":[ {"content":"1.50 é"} ],"top_k":5,"n":1.50,
            "chat_template_kwargs":{"x":1,"y":2}}"#;
        let plain = r#"{"model":"a:hot","messages":[ {"content":"1.50 é"} ],"n":1.50,"chat_template_kwargs":{"y":2},"#;
        assert_eq!(text(body, "a").unwrap(), format!(r#"{plain}"extra":{{"deep":[1]}},"temperature":0.5}}"#));
        assert_eq!(
            text(body, "a:hot").unwrap(),
            format!(r#"{plain}"extra":{{"deep":[1]}},"temperature":1.5}}"#)
        );
        assert_eq!(text("{}", "a").unwrap(), r#"{"extra":{"deep":[1]},"temperature":0.5}"#);
        for body in ["", "[]", "7", "{", "{\"a\":}"] {
            assert_eq!(text(body, "a"), None, "{body}");
        }
    }

    #[test]
    fn a_default_and_a_system_message_give_way_to_the_clients_own() {
        let file = "[models.a]\ncmd = 'x ${PORT}'\n[models.a.filters]\ndefault = {stop = ['X'], 'o.n' = 1}\nsystem = 'be \"kind\"'\n";
        let filters =
            Arc::clone(&plimsoll_config::parse("p.toml", file, &|_| None).unwrap().models[0].filters);
        let text =
            |body: &str| String::from_utf8(filtered(body.as_bytes(), &filters, "a").unwrap().body).unwrap();
        assert_eq!(
            text(r#"{"messages":[ {"role":"user","content":"x"}]}"#),
            r#"{"messages":[{"content":"be \"kind\"","role":"system"}, {"role":"user","content":"x"}],"o":{"n":1},"stop":["X"]}"#
        );
        let own = r#"{"messages":[{"role":"system","content":"s"}],"o":{"n":2},"stop":null}"#;
        assert_eq!(text(own), own.replace(r#""stop":null"#, r#""stop":["X"]"#));
        assert_eq!(
            text(r#"{"messages":[],"o":{"n":2},"stop":[]}"#),
            r#"{"messages":[],"o":{"n":2},"stop":[]}"#
        );
    }

    #[test]
    fn the_place_of_the_models_name_is_that_of_the_last() {
        let done = filtered(br#"{"model":"b","top_k":1,"model":"a"}"#, &filters(), "a").unwrap();
        assert_eq!(&done.body[done.model.unwrap()], br#""a""#);
        assert_eq!(filtered(br#"{"model":7}"#, &filters(), "a").unwrap().model, None);
    }

    #[test]
    fn million_a_body_is_rewritten_as_json_or_left_alone() {
        let seed = br#"{"model":"a","messages":[{"role":"user","content":"h\"i"}],"top_k":1,"chat_template_kwargs":{"x":{}}}"#;
        let filters = filters();
        mutants(&[seed], &[b"\"top_k\":", b"\"model\":\"b\"", b"\\u0065", b"1e400"], |body| {
            let is_object = serde_json::from_slice::<Value>(body).is_ok_and(|value| value.is_object());
            let done = filtered(body, &filters, "a");
            if is_object {
                let value: Value = serde_json::from_slice(&done.expect("an object").body).expect("JSON");
                assert!(value.get("top_k").is_none() && value["temperature"] == 0.5);
            }
        });
    }
}
