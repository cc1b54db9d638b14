//! Answers requests for models: passes each to this host's runtime, or to another host of the fleet.
//!
//! The runtime knows no fleet. Without a membership everything goes to the runtime.

use std::rc::Rc;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use plimsoll_route::{
    FeedListener, FileAnswer, FileAnswered, HostRequest, HttpProblem, RequestPrompt, RequestRouter,
    RouteOptions, no_files,
};
use plimsoll_scheduler::ModelId;

use super::{FleetMember, ServePass};
use plimsoll_runtime::Runtime;

/// The runtime as a host of a fleet, if it is one.
#[derive(Debug)]
pub struct Fleet {
    runtime: Rc<Runtime>,
    member: Option<Rc<FleetMember>>,
}

impl Fleet {
    pub fn around(runtime: Rc<Runtime>, member: Option<Rc<FleetMember>>) -> Self {
        Self { runtime, member }
    }
}

impl RequestRouter for Fleet {
    type Pass = ServePass;
    type Local = Runtime;

    fn local(&self) -> &Runtime {
        &self.runtime
    }

    fn hop(&self, headers: &HeaderMap) -> Option<Result<HostRequest, HttpProblem>> {
        self.member.as_ref()?.hop(headers)
    }

    fn news(&self) -> Result<FeedListener, HttpProblem> {
        let none = || HttpProblem::new(StatusCode::NOT_FOUND, "no_news", "this server is in no fleet");
        self.member.as_ref().ok_or_else(none)?.news()
    }

    fn give_files(&self, head: &Parts) -> FileAnswered {
        match &self.member {
            Some(member) => member.give_files(head),
            None => Box::pin(async { Err(no_files()) }),
        }
    }

    fn copy_files(&self, head: &Parts) -> Result<FileAnswer, HttpProblem> {
        self.member.as_ref().ok_or_else(no_files)?.copy_files(head)
    }

    fn host_name(&self) -> Option<HeaderValue> {
        self.member.as_ref().map(|member| member.name.clone())
    }

    fn admit_at_once(self: &Rc<Self>, model: ModelId, options: RouteOptions) -> Option<ServePass> {
        match &self.member {
            Some(member) => member.admit_at_once(&self.runtime, model, &options),
            None => self.runtime.admit_at_once(model, options).map(ServePass::from),
        }
    }

    async fn admit(
        self: Rc<Self>,
        model: ModelId,
        options: RouteOptions,
        prompt: RequestPrompt<'_>,
    ) -> Result<ServePass, HttpProblem> {
        let runtime = Rc::clone(&self.runtime);
        if let Some(member) = self.member.clone() {
            return member.admit(runtime, model, options, prompt).await;
        }
        runtime.admit(model, options, prompt).await.map(ServePass::from)
    }
}
