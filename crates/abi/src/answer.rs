//! Answers questions: reads their JSON and the headers of the models that they name.

use std::panic::{AssertUnwindSafe, catch_unwind};

use plimsoll_doctor::{LineSource, LogReader, diagnose};
use plimsoll_plan::{QuestionError, QuestionText, document};
use plimsoll_probe::models::{self, ReadModelsError};
use serde::Deserialize;
use serde_json::json;

/// What a log is asked about.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuestion {
    log: String,
    /// Further information about the failure, as `--context` takes it.
    #[serde(default)]
    context: Vec<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error(transparent)]
    Question(#[from] QuestionError),
    #[error(transparent)]
    Models(#[from] ReadModelsError),
    #[error("the question or its answer is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the question was not answered because of a fault in plimsoll; its message is on stderr")]
    Panic,
}

/// The plan of a question, by the formulas. See [`QuestionText`] for its keys.
pub(crate) fn plan(question: &[u8]) -> Result<String, AnswerError> {
    let question = QuestionText::from_json(question)?;
    let mut question = question.read()?;
    let params = question.options.params(question.program).map_err(QuestionError::from)?;
    let models = models::read(&params, question.engine.kind.dialect())?;
    let estimate = plimsoll_probe::estimate(models, question.engine, question.program);
    question.room.bus = plimsoll_probe::bus::measured();
    question.room.doubts.splice(0..0, plimsoll_probe::missing_adapters(&question.options));
    Ok(document(&question.answer(&estimate)?)?)
}

/// The diagnosis of a log: `{"log": TEXT, "context": [TEXT]}`.
pub(crate) fn doctor(question: &[u8]) -> Result<String, AnswerError> {
    let question: LogQuestion = serde_json::from_slice(question)?;
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, question.log.as_bytes());
    for text in &question.context {
        reader.feed(LineSource::Context, text.as_bytes());
        // The reader works on whole lines; without the line feed two texts would become one.
        reader.feed(LineSource::Context, b"\n");
    }
    Ok(document(&diagnose(&reader.finish()))?)
}

/// The answer, or the error as a document. No panic leaves it.
pub(crate) fn answered(question: &[u8], answer: fn(&[u8]) -> Result<String, AnswerError>) -> String {
    // Both functions keep nothing from one call to the next, so a panic leaves nothing half done.
    let answer = catch_unwind(AssertUnwindSafe(|| answer(question))).unwrap_or(Err(AnswerError::Panic));
    answer.unwrap_or_else(|error| {
        let text = error.to_string();
        let (text, remedy) =
            text.split_once("\nhint: ").map_or((&*text, None), |(text, remedy)| (text, Some(remedy)));
        json!({ "error": { "text": text, "remedy": remedy } }).to_string()
    })
}
