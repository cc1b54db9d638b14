//! Computes how many tokens a request may occupy in the KV cache: an upper bound, or the engine's count.
//!
//! The exact count comes from the engine's `/apply-template` and `/tokenize`. An unknown depth counts as the
//! whole context of a slot.

use std::borrow::Cow;

use bytes::Bytes;
use http::{Method, Response, StatusCode, Uri};
use memchr::memmem;
use plimsoll_scheduler::RequestDepth;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::Semaphore;

use super::ask::exchange;
use super::limits::Limits;
use super::rope::Rope;
use super::upstream::Upstream;
use plimsoll_task::spawn_blocking;

mod certain;
mod prefixes;
mod requested;

use self::requested::PromptParameters;
pub use certain::CertainText;
pub use prefixes::PromptPrefixes;

/// Tokens that a chat template may add to the text of the body: its own system prompt and its marks.
const TEMPLATE: u64 = 1024;
/// A larger body holds more tokens than any context.
const MOST_COUNTED: usize = 8 * 1024 * 1024;
/// The answer to a count lists every token, of seven digits at most; more is no answer.
const LONGEST_COUNT: usize = 8 * MOST_COUNTED;
/// A body up to this size is read within a millisecond.
const SMALL: usize = 256 * 1024;
/// Counts of larger bodies at once.
static LARGE_COUNTS: Semaphore = Semaphore::const_new(2);
/// Content types of a message's parts that are no text.
const MEDIA: [&[u8]; 5] =
    [b"\"image_url\"", b"\"input_image\"", b"\"input_audio\"", b"\"image\"", b"\"input_file\""];

/// Way in which a route uses the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheUse {
    Nothing,
    /// A prompt without an answer.
    Reads,
    Completes,
    Chats,
    /// A chat in another dialect, which the engine's template route does not take.
    Converses,
    /// The use of the cache is unknown.
    Unknown,
}

// DECISION: a prompt never has more tokens than its body has bytes, so the body's length is the bound. The
// chat template's text adds an allowance; if the template prints tools, no bound is known.
/// The parts of a request that determine its depth.
#[derive(Clone, Copy, Debug)]
pub struct RequestPrompt<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub body: &'a Rope,
}

impl RequestPrompt<'_> {
    /// A bound, from the body alone.
    pub async fn bound(&self) -> RequestDepth {
        let (works, body) = (use_of(self.method, self.path), self.body.clone());
        off_thread(body.len(), move || bound_of(&body, works)).await.unwrap_or(RequestDepth::UNKNOWN)
    }

    /// True if the engine answers it without one of its slots.
    pub fn needs_no_slot(&self) -> bool {
        use_of(self.method, self.path) == CacheUse::Nothing
    }

    /// True if the body asks for a stream of events. The whole body is parsed: text of a prompt may look like
    /// the key.
    pub async fn streams(&self) -> bool {
        let completes = [CacheUse::Completes, CacheUse::Chats, CacheUse::Converses];
        if !completes.contains(&use_of(self.method, self.path)) {
            return false;
        }
        let body = self.body.clone();
        let read = move || serde_json::from_slice::<Streamed>(&text(&body)).is_ok_and(|body| body.stream);
        off_thread(self.body.len(), read).await.unwrap_or(false)
    }

    /// The engine's count; `None` if it does not answer, or for a prompt that no context holds.
    pub async fn count(&self, upstream: &Upstream, limits: &Limits) -> Option<RequestDepth> {
        let size = self.body.len();
        if size > MOST_COUNTED {
            return None;
        }
        // A count's memory is outside the bound on all bodies, so few large ones run at once.
        let _place = if size > SMALL { Some(LARGE_COUNTS.acquire().await.ok()?) } else { None };
        let (works, body) = (use_of(self.method, self.path), self.body.clone());
        let (prompt, counted) = off_thread(size, move || {
            let text = text(&body);
            let requested = PromptParameters::read(&text);
            (requested.prompt(), (requested.limit(), requested.answers()))
        })
        .await?;
        let prompt = match works {
            CacheUse::Chats => {
                // The body as it came: the route takes a chat request and prints it through the template.
                let answer = ask(upstream, "/apply-template", self.body.clone(), limits).await?;
                let read = move || serde_json::from_slice::<Templated>(&answer).ok();
                off_thread(size, read).await??.prompt
            }
            _ => prompt?,
        };
        // As llama-server tokenizes a prompt itself: with its special tokens, and with those in the text
        // recognised.
        let write =
            move || json!({"content": prompt, "add_special": true, "parse_special": true}).to_string();
        let body = off_thread(size, write).await?;
        let answer = ask(upstream, "/tokenize", Rope::from(Bytes::from(body)), limits).await?;
        let read = move || serde_json::from_slice::<Tokens>(&answer).ok();
        let tokens = off_thread(size, read).await??.tokens.len();
        let tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
        let (answer, answers) = counted;
        Some(RequestDepth { prompt: Some(tokens.saturating_mul(answers)), answer, answers, exact: true })
    }
}

/// Runs `work` on a body of this size: on another thread where the one that serves would stand still for it.
async fn off_thread<T: Send + 'static>(size: usize, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if size > SMALL { spawn_blocking(work).await.ok() } else { Some(work()) }
}

fn bound_of(body: &Rope, works: CacheUse) -> RequestDepth {
    let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let prompt = match works {
        CacheUse::Nothing => return RequestDepth::NOTHING,
        CacheUse::Unknown => return RequestDepth::UNKNOWN,
        // An embedding reads its whole input and writes nothing.
        CacheUse::Reads => {
            return RequestDepth { prompt: Some(length), answer: Some(0), answers: 1, exact: true };
        }
        CacheUse::Completes => length,
        CacheUse::Chats | CacheUse::Converses => length.saturating_add(TEMPLATE),
    };
    let text = text(body);
    let requested = PromptParameters::read(&text);
    let answers = requested.answers();
    // Templates print tools in a form of their own, and a picture takes tokens that its bytes do not bound.
    let bounded = !shows_media(&text) && !requested.has_tools();
    RequestDepth {
        prompt: bounded.then(|| prompt.saturating_mul(answers)),
        answer: requested.limit(),
        answers,
        exact: !requested.can_be_counted(works),
    }
}

fn text(body: &Rope) -> Cow<'_, [u8]> {
    // Most bodies are one chunk, which is borrowed; only those of several are joined.
    let mut chunks = body.chunks();
    match (chunks.next(), chunks.next()) {
        (Some(only), None) => Cow::Borrowed(only),
        _ => Cow::Owned(body.copy(0..body.len())),
    }
}

#[derive(Deserialize)]
struct Streamed {
    stream: bool,
}

#[derive(Deserialize)]
struct Templated {
    prompt: String,
}

#[derive(Deserialize)]
struct Tokens {
    tokens: Vec<IgnoredAny>,
}

fn use_of(method: &Method, path: &str) -> CacheUse {
    // GET never starts a prompt in llama-server.
    if method.is_safe() {
        return CacheUse::Nothing;
    }
    // llama-server serves most routes with and without `/v1`.
    match path.strip_prefix("/v1").unwrap_or(path) {
        "/chat/completions" => CacheUse::Chats,
        "/messages" | "/responses" => CacheUse::Converses,
        "/completions" | "/completion" | "/infill" => CacheUse::Completes,
        "/embeddings" | "/embedding" | "/rerank" | "/reranking" => CacheUse::Reads,
        "/tokenize" | "/detokenize" | "/apply-template" | "/props" | "/lora-adapters" => CacheUse::Nothing,
        path if path.ends_with("/input_tokens") || path.ends_with("/count_tokens") => CacheUse::Nothing,
        _ => CacheUse::Unknown,
    }
}

/// True if a key or a type names media. Quotes within a text are escaped, so text does not match.
fn shows_media(text: &[u8]) -> bool {
    MEDIA.iter().any(|word| memmem::find(text, word).is_some()) || escapes_letters(text)
}

/// True if a letter or an underscore is written as `\u00XX`. No encoder does so; it would hide a key from
/// this search.
fn escapes_letters(text: &[u8]) -> bool {
    memmem::find_iter(text, b"\\u00").any(|at| match text.get(at + 4..at + 6) {
        Some([b'6' | b'7', _]) => true,
        code => code.is_some_and(|code| code.eq_ignore_ascii_case(b"5f")),
    })
}

async fn ask(upstream: &Upstream, path: &'static str, body: Rope, limits: &Limits) -> Option<Vec<u8>> {
    // The engine may have closed an idle connection; the question is then repeated on a new one.
    let post = || (Method::POST, Uri::from_static(path));
    let of_success =
        |answer: Response<Vec<u8>>| (answer.status() == StatusCode::OK).then(|| answer.into_body());
    if let Some(wire) = upstream.reuse().await
        && let Some(answer) = exchange(upstream, wire, post(), body.clone(), LONGEST_COUNT).await
    {
        return answer.and_then(of_success);
    }
    let wire = upstream.connect(limits.connect_time).await.ok()?;
    exchange(upstream, wire, post(), body, LONGEST_COUNT).await.flatten().and_then(of_success)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::tests::rope_of;

    fn bound(path: &str, body: &str) -> RequestDepth {
        let body = rope_of(body.as_bytes(), &[7]);
        bound_of(&body, use_of(&Method::POST, path))
    }

    #[test]
    fn a_completion_is_bounded_by_its_bytes_and_its_limit() {
        let body = r#"{"model":"m","prompt":"the ship","max_tokens":40}"#;
        let depth = bound("/v1/completions", body);
        assert_eq!(depth.prompt, Some(u64::try_from(body.len()).unwrap()));
        assert_eq!((depth.answer, depth.answers, depth.exact), (Some(40), 1, false));
        assert_eq!(bound("/completion", r#"{"prompt":"x","n_predict":-1}"#).answer, None);
        assert_eq!(bound("/completion", r#"{"prompt":"x"}"#).answer, None);
    }

    #[test]
    fn every_answer_of_every_prompt_has_a_slot_of_its_own() {
        let depth = bound("/v1/completions", r#"{"prompt":["a","b","c"],"n":2,"max_tokens":9}"#);
        assert_eq!(depth.answers, 6);
        assert!(depth.exact, "an engine counts one prompt");
        let tokens = bound("/v1/completions", r#"{"prompt":[1,2,3],"max_tokens":9}"#);
        assert_eq!(tokens.answers, 1, "a prompt of three tokens");
        assert_eq!(bound("/v1/completions", r#"{"prompt":[[1,2],[3]]}"#).answers, 2);
    }

    #[test]
    fn a_chat_has_an_allowance_for_its_template_and_tools_or_pictures_have_no_bound() {
        let body = r#"{"messages":[{"role":"user","content":"an \"image_url\""}],"max_completion_tokens":5}"#;
        let depth = bound("/v1/chat/completions", body);
        assert_eq!(depth.prompt, Some(u64::try_from(body.len()).unwrap() + TEMPLATE));
        assert_eq!(depth.answer, Some(5));
        let tools = bound("/v1/chat/completions", r#"{"messages":[],"tools":[{"type":"function"}]}"#);
        assert_eq!((tools.prompt, tools.exact), (None, false), "but the engine can count it");
        let picture =
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]}"#;
        let hidden = picture.replace('_', "\\u005F");
        assert_eq!(bound("/v1/chat/completions", &hidden).prompt, None, "an escape hides nothing");
        let picture = bound("/v1/chat/completions", picture);
        assert_eq!(picture.prompt, None);
        assert_eq!(bound("/v1/messages", r#"{"messages":[],"max_tokens":7}"#).answer, Some(7));
    }

    #[test]
    fn requests_without_kv_have_no_depth_and_unknown_ones_the_whole() {
        for path in ["/tokenize", "/apply-template", "/v1/chat/completions/input_tokens", "/props"] {
            assert_eq!(bound(path, "{}"), RequestDepth::NOTHING, "{path}");
        }
        for path in ["/slots/0", "/v1/audio/transcriptions", "/v1/made/up"] {
            assert_eq!(bound(path, "{}"), RequestDepth::UNKNOWN, "{path}");
        }
        assert_eq!(bound_of(&Rope::default(), use_of(&Method::GET, "/slots")), RequestDepth::NOTHING);
        assert_eq!(bound("/v1/embeddings", r#"{"input":"abc"}"#).answer, Some(0));
    }

    #[test]
    fn a_body_that_is_no_json_is_bounded_by_its_length_and_its_answer_by_nothing() {
        for body in ["", "{", "[1,2]", r#"{"max_tokens":"many"}"#] {
            let depth = bound("/v1/completions", body);
            assert_eq!(depth.prompt, Some(u64::try_from(body.len()).unwrap()));
            assert_eq!((depth.answer, depth.answers), (None, 1), "{body}");
        }
    }

    /// Connections that so many counts of a body of this size make to an engine that never answers.
    async fn requested_at_once(counts: usize, size: usize) -> usize {
        let engine = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = engine.local_addr().unwrap().port();
        let upstream = Upstream::new(plimsoll_engine::EngineAddress::Port(port));
        let body = Rope::from(Bytes::from(format!(r#"{{"prompt":"{}"}}"#, "x".repeat(size))));
        let prompt = RequestPrompt { method: &Method::POST, path: "/completion", body: &body };
        let limits = Limits::default();
        let mut requested = 0;
        let mut streams = Vec::new();
        let count = || prompt.count(&upstream, &limits);
        let mut counting: Vec<_> = (0..counts).map(|_| Box::pin(count())).collect();
        let all = std::future::poll_fn(|context| {
            counting.retain_mut(|count| count.as_mut().poll(context).is_pending());
            std::task::Poll::<()>::Pending
        });
        let accept = async {
            // An engine of the machine itself is asked within milliseconds.
            let wait = std::time::Duration::from_millis(500);
            while let Ok(Ok((stream, _))) = tokio::time::timeout(wait, engine.accept()).await {
                streams.push(stream);
                requested += 1;
            }
        };
        tokio::select! {
            () = all => {}
            () = accept => {}
        }
        requested
    }

    #[tokio::test]
    async fn few_large_prompts_are_counted_at_once_and_one_beyond_every_context_never() {
        assert_eq!(requested_at_once(5, 10).await, 5);
        assert_eq!(requested_at_once(5, SMALL).await, 2);
        assert_eq!(requested_at_once(1, MOST_COUNTED).await, 0);
    }
}
