//! Answers requests for models: passes each to this host's runtime, or to another host of the fleet.
//!
//! The runtime knows no fleet. Without a membership everything goes to the runtime.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use plimsoll_base::Bytes;
use plimsoll_config::RequestFilters;
use plimsoll_hub::DerivedModel;
use plimsoll_log::Log;
use plimsoll_route::{
    DownloadOrder, Events, Exposition, FeedListener, FileAnswer, FileAnswered, HostRequest, HttpProblem,
    ModelListing, ModelService, RequestPrompt, RouteOptions, Upstream, WhatIfError, no_files,
};
use plimsoll_scheduler::{ModelId, SchedulerSnapshot};
use serde_json::Value;

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

impl ModelService for Fleet {
    type Pass = ServePass;

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

    fn resolve(&self, name: &str) -> Option<ModelId> {
        self.runtime.resolve(name)
    }

    fn filters(&self, model: ModelId) -> Option<Arc<RequestFilters>> {
        self.runtime.filters(model)
    }

    fn stand_in(&self, name: Option<&str>) -> Option<ModelId> {
        self.runtime.stand_in(name)
    }

    fn refusal(&self, name: &str) -> Option<HttpProblem> {
        self.runtime.refusal(name)
    }

    fn with_flag(&self, flags: &[&str]) -> Option<ModelId> {
        self.runtime.with_flag(flags)
    }

    fn traces(&self) -> bool {
        ModelService::traces(&*self.runtime)
    }

    fn autoloads(&self) -> bool {
        self.runtime.autoloads()
    }

    fn upstream(&self, model: ModelId) -> Option<Rc<Upstream>> {
        self.runtime.upstream(model)
    }

    fn wait_line(&self, model: ModelId) -> String {
        self.runtime.wait_line(model)
    }

    fn models(&self) -> Vec<ModelId> {
        self.runtime.models()
    }

    fn listing(&self, model: ModelId) -> ModelListing {
        self.runtime.listing(model)
    }

    fn is_named(&self, model: ModelId, fits: impl Fn(&str) -> bool) -> bool {
        self.runtime.is_named(model, fits)
    }

    fn load(&self, model: ModelId) {
        self.runtime.load(model);
    }

    fn unload(&self, model: ModelId) {
        self.runtime.unload(model);
    }

    fn pin(&self, model: ModelId, time: Duration) {
        self.runtime.pin(model, time);
    }

    fn keep(&self, model: ModelId, time: Option<Duration>) {
        self.runtime.keep(model, time);
    }

    async fn give_way(&self, card: Option<&str>, size: Bytes, time: Duration) -> Result<(), HttpProblem> {
        self.runtime.give_way(card, size, time).await
    }

    fn about(&self) -> Value {
        self.runtime.about()
    }

    fn requests(&self) -> Value {
        ModelService::requests(&*self.runtime)
    }

    async fn reload(&self) -> Result<Vec<String>, HttpProblem> {
        self.runtime.reload().await
    }

    async fn download(&self, order: &DownloadOrder) -> Result<Option<String>, HttpProblem> {
        self.runtime.download(order).await
    }

    fn derives(&self) -> bool {
        self.runtime.derives()
    }

    async fn derive(&self, model: DerivedModel) -> Result<(), HttpProblem> {
        self.runtime.derive(model).await
    }

    async fn remove(&self, name: &str) -> Result<(), HttpProblem> {
        self.runtime.remove(name).await
    }

    fn downloading(&self) -> Vec<Value> {
        self.runtime.downloading()
    }

    fn snapshot(&self) -> SchedulerSnapshot {
        self.runtime.snapshot()
    }

    async fn what_if(&self, model: ModelId, flags: Vec<String>) -> Result<Value, WhatIfError> {
        self.runtime.what_if(model, flags).await
    }

    fn what_if_kept_free(&self, card: Option<&str>, size: Bytes) -> Result<Value, HttpProblem> {
        self.runtime.what_if_kept_free(card, size)
    }

    fn document(&self) -> Value {
        ModelService::document(&*self.runtime)
    }

    fn failures(&self) -> Value {
        self.runtime.failures()
    }

    fn events(&self) -> &Events {
        ModelService::events(&*self.runtime)
    }

    fn log(&self, model: Option<ModelId>) -> Log {
        ModelService::log(&*self.runtime, model)
    }

    fn write_metrics(&self, page: &mut Exposition) {
        self.runtime.write_metrics(page);
    }
}
