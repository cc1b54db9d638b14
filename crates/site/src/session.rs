//! Reads the headers of model files piece by piece, and plans the models that they describe.
//!
//! The page fetches the bytes, from a file that the user gives or from the server that the user names. It is
//! told which ones, and never how large a model is.

use std::collections::BTreeMap;

use plimsoll_base::{Bytes, CardSpec, known_cards};
use plimsoll_model::gguf::{FIRST, FetchHeaderError, GgufError, HeadReader, Header};
use plimsoll_model::repository;
use plimsoll_model::split::siblings;
use plimsoll_model::{Dialect, Model, ModelError};
use plimsoll_plan::{Estimate, EstimateError, Models, Question, QuestionError, QuestionText, document};
use plimsoll_planner::{EngineBuild, Plan};
use serde_json::{Value, json};

use crate::{Message, NamedFiles, POINTS, answer};

/// Bytes of a file within which its header must end.
const HEADER: Bytes = Bytes::mib(64);
/// Files that are open at once; a repository has some hundred.
const MOST_FILES: usize = 4096;

/// Open files of a page, and the models that were read from them.
#[derive(Debug, Default)]
pub struct Session {
    files: BTreeMap<usize, HeadReader>,
    opened: usize,
    /// The models that were asked for last: the same ones are planned with many contexts.
    last: Option<(NamedFiles, Models)>,
}

/// Why a message has no answer. The page shows the text.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("the message of the page cannot be read: {0}")]
    ReadMessage(serde_json::Error),
    #[error("the page names file {0}, which is not open")]
    FindFile(usize),
    #[error("more than {MOST_FILES} files are open\nhint: load the page again")]
    OpenFile,
    #[error(transparent)]
    FetchHeader(#[from] FetchHeaderError),
    #[error("{0}")]
    ReadHeader(#[from] GgufError),
    #[error("{0}")]
    ReadModel(#[from] ModelError),
    #[error(transparent)]
    Answer(#[from] QuestionError),
    #[error("the answer cannot be written: {0}")]
    WriteReply(#[from] serde_json::Error),
}

impl From<EstimateError> for SessionError {
    fn from(error: EstimateError) -> Self {
        Self::Answer(error.into())
    }
}

impl Session {
    /// Answers a message with JSON. An error is an object with the key `error` alone.
    pub fn reply(&mut self, message: &[u8]) -> String {
        let reply = Message::read(message).and_then(|(message, bytes)| self.answered(message, bytes));
        reply.unwrap_or_else(|error| json!({ "error": error.to_string() }).to_string())
    }

    fn answered(&mut self, message: Message, bytes: &[u8]) -> Result<String, SessionError> {
        let reply = match message {
            Message::Cards {} => {
                let card = |(name, memory)| json!({ "name": name, "memory": memory });
                json!({ "cards": known_cards().map(card).collect::<Vec<_>>() })
            }
            Message::CheckCard { card } => {
                let spec: CardSpec = card.parse().map_err(QuestionError::from)?;
                json!({ "cards": spec.cards.len() })
            }
            Message::Open { length, like, engine } => self.open(length, like, engine.as_deref())?,
            Message::Take { file, start } => self.take(file, start, bytes.to_vec())?,
            Message::Close { files } => {
                self.files.retain(|file, _| !files.contains(file));
                self.last = None;
                json!({})
            }
            Message::Choose { files, tag } => choose(&files, tag.as_deref()),
            Message::Siblings { path } => json!({ "files": siblings(&path) }),
            // The document as it is: its bytes are those of the command line.
            Message::Plan { models, question } => return Ok(document(&self.plan(&models, &question)?.2)?),
            Message::Answer { models, question } => {
                let (estimate, question, plan) = self.plan(&models, &question)?;
                let besides: Vec<u64> = plan.largest_context.into_iter().collect();
                let points = estimate.course(&question.options, &question.room.cards, POINTS, &besides)?;
                json!({ "plan": plan, "html": answer(&plan, &points) })
            }
        };
        Ok(reply.to_string())
    }

    fn open(
        &mut self,
        length: u64,
        like: Option<usize>,
        engine: Option<&str>,
    ) -> Result<Value, SessionError> {
        if self.files.len() >= MOST_FILES {
            return Err(SessionError::OpenFile);
        }
        let vocabulary = match like {
            Some(like) => self.files.get(&like).ok_or(SessionError::FindFile(like))?.vocabulary(),
            None => &[],
        };
        let reader = HeadReader::new(length, dialect(engine)?, HEADER, vocabulary);
        let file = self.opened;
        self.opened += 1;
        self.files.insert(file, reader);
        Ok(json!({ "file": file, "wants": [0, FIRST.min(length)] }))
    }

    /// The next range of the file, or `null` and whether its vocabulary is surely the assumed one.
    fn take(&mut self, file: usize, start: u64, bytes: Vec<u8>) -> Result<Value, SessionError> {
        let reader = self.files.get_mut(&file).ok_or(SessionError::FindFile(file))?;
        reader.take(start, bytes);
        if let Some(range) = reader.wants()? {
            return Ok(json!({ "wants": [range.start, range.end] }));
        }
        reader.header()?;
        Ok(json!({ "wants": null, "sure": reader.fills_its_file() }))
    }

    /// The plan of a question, with what it was made of.
    fn plan(
        &mut self,
        models: &NamedFiles,
        question: &QuestionText,
    ) -> Result<(Estimate, Question, Plan), SessionError> {
        let question = question.read()?;
        let models = self.models(models)?;
        let estimate =
            Estimate { engine: question.engine, program: question.program, ..Estimate::new(models) };
        let plan = question.answer(&estimate)?;
        Ok((estimate, question, plan))
    }

    fn models(&mut self, named: &NamedFiles) -> Result<Models, SessionError> {
        if let Some((_, models)) = self.last.as_ref().filter(|(last, _)| last == named) {
            return Ok(models.clone());
        }
        let beside = |files: &Vec<usize>| (!files.is_empty()).then(|| self.model(files)).transpose();
        let models = Models {
            main: self.model(&named.main)?,
            draft: beside(&named.draft)?,
            projector: beside(&named.projector)?,
        };
        self.last = Some((named.clone(), models.clone()));
        Ok(models)
    }

    fn model(&self, files: &[usize]) -> Result<Model, SessionError> {
        let header = |file: &usize| -> Result<Header<'_>, SessionError> {
            Ok(self.files.get(file).ok_or(SessionError::FindFile(*file))?.header()?)
        };
        let headers = files.iter().map(header).collect::<Result<Vec<_>, _>>()?;
        Ok(Model::from_headers(&headers)?)
    }
}

fn dialect(engine: Option<&str>) -> Result<Dialect, SessionError> {
    let engine: EngineBuild =
        engine.map_or(Ok(EngineBuild::LLAMA_CPP), str::parse).map_err(QuestionError::from)?;
    Ok(engine.kind.dialect())
}

/// The models of a repository, each with its projector, and the one that llama-server would load.
fn choose(files: &[(String, Option<u64>)], tag: Option<&str>) -> Value {
    let sized: Vec<(&str, Option<u64>)> = files.iter().map(|(path, size)| (path.as_str(), *size)).collect();
    let paths: Vec<&str> = sized.iter().map(|(path, _)| *path).collect();
    let found = repository::quantisations(&sized);
    let chosen = repository::model(&paths, tag);
    let (chosen, why) = match &chosen {
        Ok(files) => (found.iter().position(|one| one.files == *files), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let one = |one: &repository::Quantisation| {
        let projector = one.files.first().and_then(|first| repository::projector(&paths, first));
        json!({ "name": one.name, "files": one.files, "size": one.size, "projector": projector })
    };
    json!({
        "quantisations": found.iter().map(one).collect::<Vec<_>>(),
        "chosen": chosen,
        "why": why,
    })
}
