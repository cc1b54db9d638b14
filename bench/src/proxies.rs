//! Starts each program under benchmark (`plimsoll serve`, the fake engine, nginx) with its configuration.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::process::{ProcessError, Server, free_address};
use crate::requests::KEY;

/// Keys of other clients.
const OTHER_KEYS: usize = 20;

/// Content events of a stream; three more frame it.
pub(crate) const EVENTS: u64 = 256;
pub(crate) const FRAMING_EVENTS: u64 = 3;

/// Requests that the engine computes at once: as many as the load has connections.
const SLOTS: usize = 64;

/// Long streams, and connections without end: what is measured is the proxy, not the engine's reconnects or
/// its queue.
fn engine_script() -> String {
    format!("--fake events={EVENTS} --fake keep_alive_max=0 --fake idle_close_ms=0 --fake slots={SLOTS}")
}

/// The fake engine by itself.
pub(crate) fn engine(program: &Path) -> Result<Server, ProcessError> {
    let address = free_address()?;
    let port = address.port();
    let arguments = words(&format!("--port {port} --alias alpha {}", engine_script()));
    ready(Server::spawn(program, &arguments, address)?)
}

/// nginx with one worker, as a plain streaming reverse proxy with kept upstream connections.
pub(crate) fn nginx(program: &Path, upstream: SocketAddr, folder: &Path) -> Result<Server, ProcessError> {
    let address = free_address()?;
    let config = write(folder.join("nginx.conf"), &nginx_config(address, upstream, folder))?;
    let arguments = ["-c", &config.to_string_lossy(), "-p", &folder.to_string_lossy()].map(str::to_owned);
    ready(Server::spawn(program, &arguments, address)?)
}

/// The file that nginx reads. Connections are never closed for their number of requests, on either side, and
/// a prompt is held in memory: measured, that adds a third of what passing it on in pieces of 16 KiB adds.
fn nginx_config(listen: SocketAddr, upstream: SocketAddr, folder: &Path) -> String {
    let folder = folder.display();
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    format!(
        "daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
    client_max_body_size 0;
    upstream engine {{ server {upstream}; keepalive 256; keepalive_requests 1000000000; }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
            client_body_buffer_size 4m;
        }}
    }}
}}
"
    )
}

/// What `plimsoll serve` is started with.
#[derive(Debug)]
pub(crate) struct Plimsoll<'a> {
    /// What the report calls this build.
    pub(crate) name: &'static str,
    pub(crate) program: &'a Path,
    pub(crate) engine: &'a Path,
    pub(crate) folder: &'a Path,
}

impl Plimsoll<'_> {
    /// Serves these models on a card of 1 GiB, of which each model takes 600 MiB.
    pub(crate) fn spawn(&self, models: &[&str], keys: bool) -> Result<Server, ProcessError> {
        let address = free_address()?;
        let keys = if keys { named_keys() } else { String::new() };
        let text = self.config(models) + &keys;
        let config = write(self.folder.join(format!("plimsoll-{}.toml", address.port())), &text)?;
        let arguments = words(&format!(
            "serve {} --listen {address} --card name=bench,kind=host,total=1GiB",
            config.display()
        ));
        Server::spawn(self.program, &arguments, address)
    }

    /// Serves these models, and waits for the first healthy response.
    pub(crate) fn ready(&self, models: &[&str], keys: bool) -> Result<Server, ProcessError> {
        ready(self.spawn(models, keys)?)
    }

    /// Serves one model as a host of a fleet, on a card of this size.
    pub(crate) fn spawn_host(&self, fleet: &str, store: &str, memory: &str) -> Result<Server, ProcessError> {
        let address = free_address()?;
        // A command of its own: a host offers a model by its file, and there is none.
        let command = format!("{} --port ${{PORT}} --alias alpha {}", self.engine.display(), engine_script());
        let text = format!("[models.alpha]\ncmd = {command:?}\nmemory = \"600MiB\"\n{fleet}");
        let config = write(self.folder.join(format!("host-{}.toml", address.port())), &text)?;
        let arguments = words(&format!(
            "serve {} --listen {address} --card name=bench,kind=host,total={memory} --fleet {store}",
            config.display()
        ));
        Server::spawn(self.program, &arguments, address)
    }

    /// Models that give only flags, so that the engine says on its control channel when it is ready.
    fn config(&self, models: &[&str]) -> String {
        let mut command = vec![self.engine.display().to_string()];
        command.extend(words(&engine_script()));
        let section = |model: &&str| {
            format!("[models.{model}]\nmodel = \"/models/{model}.gguf\"\nmemory = \"600MiB\"\n")
        };
        let sections: String = models.iter().map(section).collect();
        format!("[engine]\ncommand = {command:?}\n{sections}")
    }
}

/// API keys with every limit; the one of the requests is the last, and its limits are never reached.
fn named_keys() -> String {
    let limits = "models = [\"beta\", \"al*\"]\nrequests-per-minute = 4000000000\ntokens-per-minute = 4000000000\n\
        concurrency = 100000\nexpires = \"2199-01-01\"\n";
    let key = |number: usize| format!("[keys.k{number}]\nkey = \"sk-other-{number}\"\n{limits}");
    let others: String = (0..OTHER_KEYS).map(key).collect();
    format!("{others}[keys.zz]\nkey = \"{KEY}\"\n{limits}")
}

fn ready(mut server: Server) -> Result<Server, ProcessError> {
    server.wait_ready()?;
    Ok(server)
}

fn write(path: PathBuf, text: &str) -> Result<PathBuf, ProcessError> {
    match fs::write(&path, text) {
        Ok(()) => Ok(path),
        Err(source) => Err(ProcessError::WriteConfig { path, source }),
    }
}

pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn plimsoll_understands_the_configuration_we_write() {
        let (program, folder) = (Path::new("/p/plimsoll"), Path::new("/tmp"));
        let plimsoll = Plimsoll { name: "plimsoll", program, engine: Path::new("/p/fake-engine"), folder };
        let roster =
            plimsoll_config::parse("plimsoll.toml", &plimsoll.config(&["alpha", "beta"]), &|_| None).unwrap();
        let command = format!("/p/fake-engine {}", engine_script());
        assert_eq!(roster.serve.engine, Some(words(&command)));
        assert_eq!(roster.models.len(), 2);
        assert!(roster.models.iter().all(|model| model.launch.options().is_some()));
        let text = plimsoll.config(&["alpha"]) + &named_keys();
        let roster = plimsoll_config::parse("plimsoll.toml", &text, &|_| None).unwrap();
        assert_eq!(roster.serve.keys.len(), OTHER_KEYS + 1);
    }
}
