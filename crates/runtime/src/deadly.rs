//! Recognises requests that kill engines. A request that ran when an engine died is tried alone, and refused
//! for a while if more engines die under it.
//!
//! DECISION: a client sends a failed request again, as a new one. So the body is recognised by a digest of
//! its length, its beginning and its end. The digest is computed when the answer begins, or when an engine of
//! the model has died lately, and takes a microsecond. It is forgotten after some minutes, and nothing is
//! kept of the text.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::time::{Duration, Instant};

use http::StatusCode;
use plimsoll_base::{Advice, Hint, IdMap, Reason};
use plimsoll_scheduler::{ModelId, RequestId};

use plimsoll_route::{HttpProblem, RequestPrompt};

/// Time for which a body is remembered, and refused if it killed twice.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Engines that died under a body: with others, and twice alone.
const KILLS: u32 = 3;
/// Bytes of a body that its digest covers: of its beginning, and of its end.
const FIRST: usize = 512;
const LAST: usize = 2048;

/// Digest of a body, with a secret of this process.
pub(super) type BodyDigest = u64;

#[derive(Debug, Default)]
pub(super) struct DeadlyBodies {
    secret: RandomState,
    /// Suspects of the scheduler, until their bodies are at hand.
    suspects: RefCell<IdMap<RequestId, (ModelId, u32)>>,
    /// Engines that died under a body.
    known: RefCell<HashMap<(ModelId, BodyDigest), (u32, Instant)>>,
    /// The end of the time in which digests are computed.
    watched: RefCell<HashMap<ModelId, Instant>>,
    any: Cell<bool>,
}

impl DeadlyBodies {
    /// Takes a suspect of the scheduler, whose engine has just died.
    pub(super) fn suspected(&self, request: RequestId, model: ModelId, kills: u32) {
        self.any.set(true);
        self.watched.borrow_mut().insert(model, Instant::now() + REMEMBERED);
        self.suspects.borrow_mut().insert(request, (model, kills));
    }

    /// Takes the body of a request whose engine broke off; `digest` is asked for that of a suspect.
    pub(super) fn broke(&self, request: RequestId, digest: impl FnOnce() -> Option<BodyDigest>) {
        let suspect = self.suspects.borrow_mut().remove(&request);
        if let Some((model, kills)) = suspect
            && let Some(digest) = digest()
        {
            self.known.borrow_mut().insert((model, digest), (kills, Instant::now()));
        }
    }

    /// Forgets a body that was answered.
    pub(super) fn answered(&self, model: ModelId, digest: BodyDigest) {
        self.known.borrow_mut().remove(&(model, digest));
    }

    /// The digest of a request of a model whose engine died lately.
    pub(super) fn look(&self, model: ModelId, prompt: &RequestPrompt<'_>) -> Option<BodyDigest> {
        self.is_watched(model).then(|| self.digest(prompt))
    }

    pub(super) fn is_watched(&self, model: ModelId) -> bool {
        self.any.get() && self.watched.borrow().get(&model).is_some_and(|until| *until > Instant::now())
    }

    pub(super) fn digest(&self, prompt: &RequestPrompt<'_>) -> BodyDigest {
        let mut hasher = self.secret.build_hasher();
        let length = prompt.body.len();
        (prompt.path, length).hash(&mut hasher);
        hasher.write(&prompt.body.copy(0..length.min(FIRST)));
        hasher.write(&prompt.body.copy(length.saturating_sub(LAST)..length));
        hasher.finish()
    }

    /// Engines that died under the body; or the answer to a body that killed too many.
    pub(super) fn kills(
        &self,
        model: (ModelId, &str),
        digest: Option<BodyDigest>,
    ) -> Result<u32, HttpProblem> {
        let (id, name) = model;
        let mut known = self.known.borrow_mut();
        known.retain(|_, (_, at)| at.elapsed() < REMEMBERED);
        let Some((kills, at)) = digest.and_then(|digest| known.get(&(id, digest))).copied() else {
            return Ok(0);
        };
        if kills < KILLS {
            return Ok(kills);
        }
        let seconds = REMEMBERED.saturating_sub(at.elapsed()).as_secs().max(1);
        let text = format!(
            "the engine of {name} died {kills} times under a request with this body, so the body is refused for another \
                {seconds} s"
        );
        let reason =
            Reason::new("deadly_request", text).fact("kills", u64::from(kills)).fact("seconds", seconds);
        let remedy = "send another request, for example a shorter one; the operator finds the last lines of the engine in \
            /logs";
        let hint = Hint::new(Advice::Other(remedy.to_owned()));
        Err(HttpProblem::because(StatusCode::UNPROCESSABLE_ENTITY, reason).hint(hint))
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use plimsoll_route::Rope;

    #[test]
    fn a_body_is_suspect_after_one_engine_and_refused_after_three_to_anybody() {
        let bodies = DeadlyBodies::default();
        let (model, other) = ((ModelId(1), "m"), (ModelId(2), "n"));
        let text = |text: &'static str| Rope::from(bytes::Bytes::from_static(text.as_bytes()));
        let (deadly, plain) = (text("{deadly}"), text("{plain}"));
        let digest = |body: &Rope| {
            Some(bodies.digest(&RequestPrompt { method: &Method::POST, path: "/v1/completions", body }))
        };
        assert!(!bodies.is_watched(model.0), "no digest is computed before an engine has died");
        for kills in 1..=3 {
            bodies.suspected(RequestId(7), model.0, kills);
            bodies.broke(RequestId(7), || digest(&deadly));
            bodies.broke(RequestId(8), || digest(&plain));
            assert!(matches!(bodies.kills(model, digest(&plain)), Ok(0)));
            assert!(matches!(bodies.kills(other, digest(&deadly)), Ok(0)));
            match bodies.kills(model, digest(&deadly)) {
                Ok(known) => assert!(known == kills && kills < 3),
                Err(problem) => {
                    assert_eq!((problem.status.as_u16(), kills), (422, 3));
                    assert!(problem.hints[0].to_string().contains("another request"));
                }
            }
        }
        bodies.answered(model.0, digest(&deadly).unwrap());
        assert!(matches!(bodies.kills(model, digest(&deadly)), Ok(0)));
    }
}
