//! Writes the lines below the list of `plimsoll top`: why requests wait, and the latest events.

use std::collections::VecDeque;

use serde_json::Value;

use super::view::plain;
use crate::screen::status::{ago, time};

/// Marks that are kept, which no terminal shows all of.
const KEPT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Happened {
    now: f64,
    waits: Vec<String>,
    /// The number of the newest mark. Documents after the first hold only newer ones.
    last: u64,
    /// Times and texts, the oldest first.
    marks: VecDeque<(f64, String)>,
}

impl Happened {
    pub(super) fn take(&mut self, status: &Value) {
        let list = |key: &str| status[key].as_array().map(Vec::as_slice).unwrap_or_default();
        self.now = status["now"].as_f64().unwrap_or_default();
        self.waits = list("models").iter().filter_map(|model| wait(model, self.now)).collect();
        let number = |mark: &Value| mark["number"].as_u64().unwrap_or_default();
        let newest = list("marks").iter().map(number).max().unwrap_or(self.last);
        if newest < self.last {
            // The server has started again.
            (self.last, self.marks) = (0, VecDeque::new());
        }
        for mark in list("marks").iter().filter(|mark| number(mark) > self.last) {
            if self.marks.len() == KEPT {
                self.marks.pop_front();
            }
            self.marks.push_back((mark["at"].as_f64().unwrap_or_default(), text(mark, list("models"))));
        }
        self.last = newest;
    }

    /// At most so many lines: what waits first, then what happened, the newest first.
    pub(super) fn lines(&self, most: usize) -> Vec<String> {
        let marks = self.marks.iter().rev();
        let marks = marks.map(|(at, text)| format!("{:>12}  {text}", ago(self.now - at)));
        self.waits.iter().cloned().chain(marks).take(most).collect()
    }
}

fn wait(model: &Value, now: f64) -> Option<String> {
    let wait = model["outlook"]["wait"].as_object()?;
    let name = model["name"].as_str().unwrap_or("?");
    let since = time((now - wait.get("since")?.as_f64()?).max(0.0));
    let reason = wait.get("reason").and_then(|reason| reason["text"].as_str()).unwrap_or("?");
    Some(plain(&format!("{:>12}  {name} for {since}: {reason}", "waits")))
}

fn text(mark: &Value, models: &[Value]) -> String {
    let kind = mark["kind"].as_str().unwrap_or("?");
    let name = models.iter().find(|model| !model["id"].is_null() && model["id"] == mark["model"]);
    let name = name.and_then(|model| model["name"].as_str()).unwrap_or_default();
    let what = mark["text"].as_str().unwrap_or_default();
    // Reasons of failures begin with the name.
    let name = if what.starts_with(name) { "" } else { name };
    let words = [kind, name, what].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
    plain(&words.join(" "))
}
