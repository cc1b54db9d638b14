//! Permits one request to be sent: to an engine process of this host, or to another host of the fleet.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use http::response::Parts;
use http::{HeaderValue, StatusCode};
use plimsoll_base::Reason;
use plimsoll_fleet::{FleetEvent, SeatToken};
use plimsoll_scheduler::ModelId;

use super::{FleetMember, PassedOn, ended, wanted};
use plimsoll_route::{
    AnswerTokens, DECLINED, HOP, HOST, HttpProblem, MODEL, Pass, RequestPrompt, RouteOptions, SEAT,
    StallLimit, Upstream,
};
use plimsoll_runtime::{RunPass, Runtime};

/// Hosts that are tried for one request.
const MOST_TRIES: u32 = 8;
/// Pause before the next try, times the tries so far: what the host knows reaches this one within that.
const PAUSE: Duration = Duration::from_millis(30);

/// Permission to send a request to a run of this host, or to another host.
#[derive(Debug)]
pub enum ServePass {
    /// Boxed, because a pass changes hands six times a request.
    Run(Box<RunPass>),
    Peer(Box<PeerPass>),
}

/// Permission to send a request to another host, which admits it again.
pub struct PeerPass {
    member: Rc<FleetMember>,
    runtime: Rc<Runtime>,
    model: ModelId,
    options: RouteOptions,
    host: String,
    upstream: Rc<Upstream>,
    tries: u32,
    is_declined: Cell<bool>,
    /// Counts the request while it is there.
    counted: Option<PassedOn>,
}

impl fmt::Debug for PeerPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerPass").field("host", &self.host).finish_non_exhaustive()
    }
}

impl From<RunPass> for ServePass {
    fn from(pass: RunPass) -> Self {
        Self::Run(Box::new(pass))
    }
}

impl ServePass {
    pub(super) fn peer(
        member: Rc<FleetMember>,
        runtime: Rc<Runtime>,
        model: ModelId,
        options: RouteOptions,
        (host, token): (String, SeatToken),
        (peer, tries): (&Upstream, u32),
        counted: Option<PassedOn>,
    ) -> Self {
        // A name of a model may be any text; a header carries its bytes.
        let name = HeaderValue::from_bytes(runtime.state.entry(model).name.as_bytes());
        let seat = HeaderValue::from_str(&token.to_string());
        let lines = [(HOP, Ok(HeaderValue::from_static("1"))), (SEAT, seat), (MODEL, name)];
        let lines = lines.into_iter().filter_map(|(line, value)| Some((line, value.ok()?)));
        let upstream = Rc::new(peer.with_lines(lines.collect()));
        let is_declined = Cell::new(false);
        let pass = PeerPass { member, runtime, model, options, host, upstream, tries, is_declined, counted };
        Self::Peer(Box::new(pass))
    }
}

impl PeerPass {
    /// True if another program answers at the host's address. The port of a dead host may be taken by any.
    fn is_of_another(&self, head: &Parts) -> bool {
        match head.headers.get(HOST) {
            Some(name) => name.as_bytes() != self.host.as_bytes(),
            // A host that refuses a request at its door does not say its name.
            None => head.status.is_success(),
        }
    }

    /// Looks for the host anew, after this one has declined or was not reached.
    async fn next(self, prompt: RequestPrompt<'_>) -> Result<ServePass, HttpProblem> {
        let Self { member, runtime, model, options, host, tries, is_declined, counted, .. } = self;
        drop(counted);
        if tries >= MOST_TRIES {
            if is_declined.get() {
                member.submit(FleetEvent::SeatsDeclined);
            }
            let text =
                format!("none of the hosts that were asked serves the model; the last one was '{host}'");
            return Err(super::refusal(Reason::new("host_unreachable", text)));
        }
        tokio::time::sleep(PAUSE * (tries + 1)).await;
        let name = runtime.state.entry(model).name.clone();
        let affinity = member.affinity(&runtime, model, &name, &options, prompt.body);
        let (undecided, decision) = member.ask(|request| {
            if is_declined.get() {
                wanted(request, &name, &options, affinity)
            } else {
                FleetEvent::HostFailed { request, model: name.clone(), host }
            }
        });
        let decision = decision.await.unwrap_or_else(|_| ended());
        let decision = (undecided.request, decision);
        drop(undecided);
        Box::pin(Rc::clone(&member).follow(runtime, model, options, prompt, decision, tries + 1)).await
    }
}

impl Pass for ServePass {
    fn upstream(&self) -> &Rc<Upstream> {
        match self {
            Self::Run(pass) => pass.upstream(),
            Self::Peer(pass) => &pass.upstream,
        }
    }

    fn stall_limit(&self) -> StallLimit {
        match self {
            Self::Run(pass) => pass.stall_limit(),
            Self::Peer(_) => StallLimit::default(),
        }
    }

    fn is_declined(&self, head: &Parts) -> bool {
        match self {
            Self::Run(_) => false,
            Self::Peer(pass) => {
                pass.is_declined.set(head.headers.contains_key(DECLINED));
                pass.is_declined.get() || pass.is_of_another(head)
            }
        }
    }

    fn answers(&mut self, status: StatusCode, path: &str) {
        if let Self::Run(pass) = self {
            pass.answers(status, path);
        }
    }

    fn note_body(&mut self, prompt: &RequestPrompt<'_>) {
        if let Self::Run(pass) = self {
            pass.note_body(prompt);
        }
    }

    fn yields(&self) {
        if let Self::Run(pass) = self {
            pass.yields();
        }
    }

    fn streams(&mut self) {
        if let Self::Run(pass) = self {
            pass.streams();
        }
    }

    fn finished(self, tokens: Option<AnswerTokens>) {
        if let Self::Run(pass) = self {
            pass.finished(tokens);
        }
    }

    async fn bounced(self, prompt: RequestPrompt<'_>) -> Result<Self, HttpProblem> {
        match self {
            Self::Run(pass) => pass.bounced(prompt).await.map(Self::from),
            Self::Peer(pass) => pass.next(prompt).await,
        }
    }

    fn broke(self) -> Pin<Box<dyn Future<Output = HttpProblem>>> {
        match self {
            Self::Run(pass) => pass.broke(),
            Self::Peer(pass) => Box::pin(async move {
                let text = format!("host '{}' stopped in the middle of its answer", pass.host);
                HttpProblem::because(StatusCode::BAD_GATEWAY, Reason::new("host_died", text))
            }),
        }
    }
}
