//! Reads the command line of a container (`docker run`, `podman run`): image, program, mounts, ports and
//! variables.

use plimsoll_flags::{FlagValue, Options};

const PROGRAMS: [&str; 3] = ["docker", "nerdctl", "podman"];
/// Options of `run` that take no value (docs.docker.com/reference/cli/docker/container/run, podman-run(1)).
const SWITCHES: [&str; 24] = [
    "--detach",
    "--disable-content-trust",
    "--env-host",
    "--help",
    "--http-proxy",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--no-hostname",
    "--no-hosts",
    "--oom-kill-disable",
    "--passwd",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--read-only-tmpfs",
    "--replace",
    "--rm",
    "--rmi",
    "--rootfs",
    "--sig-proxy",
    "--tls-verify",
    "--tty",
];
/// The same as single letters, which may stand together: `-it`.
const LETTERS: &str = "diPqt";
/// Flags of a llama-server whose value is a file that a plan reads.
const FILES: [&str; 3] = ["--model", "--model-draft", "--mmproj"];

/// A container that a command starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerRun {
    pub(crate) image: String,
    pub(crate) entrypoint: Option<String>,
    /// Folders or files of the host, each with its path in the container.
    pub(crate) mounts: Vec<(String, String)>,
    /// Ports of the host, with their address if it is given, and in the container.
    pub(crate) ports: Vec<PortMapping>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) shares_network: bool,
    /// The place of the image in the command.
    pub(crate) at: usize,
}

/// `[ADDRESS:]OUTER:INNER`, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortMapping {
    pub(crate) address: Option<String>,
    pub(crate) outer: String,
    pub(crate) inner: String,
}

impl PortMapping {
    pub(crate) fn read(text: &str) -> Option<Self> {
        let text = text.split('/').next()?;
        let (start, inner) = text.rsplit_once(':')?;
        // An address of IPv6 is in brackets.
        let (address, outer) = match start.rsplit_once(':') {
            Some((address, outer)) => (Some(address.to_owned()), outer),
            None => (None, start),
        };
        (!outer.is_empty() && !inner.is_empty()).then(|| Self {
            address,
            outer: outer.to_owned(),
            inner: inner.to_owned(),
        })
    }
}

impl ContainerRun {
    /// The container of a command; `None` for any other command.
    pub(crate) fn of(argv: &[String]) -> Option<Self> {
        let is_program = |word: &String| PROGRAMS.contains(&word.rsplit('/').next().unwrap_or(word));
        let program = argv.iter().position(is_program)?;
        let verb = argv.get(program..)?.iter().position(|word| word == "run" || word == "create")?;
        let mut run = Self::default();
        let mut next = program + verb + 1;
        while let Some(word) = argv.get(next) {
            let Some((option, value)) = option(word) else {
                run.at = next;
                run.image.clone_from(word);
                return Some(run);
            };
            let (value, taken) = match value {
                OptionValue::None => (None, 1),
                OptionValue::Joined(value) => (Some(value), 1),
                OptionValue::Next => (argv.get(next + 1).map(String::as_str), 2),
            };
            if let Some(value) = value {
                run.take(option, value);
            }
            next += taken;
        }
        None
    }

    fn take(&mut self, option: &str, value: &str) {
        match option {
            "-v" | "--volume" => self.mounts.extend(volume(value)),
            "--mount" => self.mounts.extend(mount(value)),
            "-p" | "--publish" => self.ports.extend(PortMapping::read(value)),
            "-e" | "--env" => {
                self.env
                    .extend(value.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            "--entrypoint" => self.entrypoint = Some(value.to_owned()),
            "--network" | "--net" => self.shares_network = value == "host",
            _ => {}
        }
    }

    /// The word behind which the flags of its llama-server begin; `None` if it starts none.
    pub(crate) fn llama_server(&self, argv: &[String]) -> Option<usize> {
        let words = argv.get(self.at + 1..)?;
        self.skipped(words).map(|skipped| self.at + skipped)
    }

    /// The number of words behind the image before the flags of its llama-server.
    pub(crate) fn skipped(&self, words: &[String]) -> Option<usize> {
        if let Some(entrypoint) = &self.entrypoint {
            return is_llama_server(entrypoint).then_some(0);
        }
        if let Some(at) = words.iter().position(|word| is_llama_server(word)) {
            return Some(at + 1);
        }
        // Images of llama.cpp (`.devops/*.Dockerfile`): `server` runs it, `full` runs what its first word
        // says.
        let name = self.image.rsplit('/').next()?;
        let (name, tag) = name.split_once(':').unwrap_or((name, ""));
        if is_llama_server(name) {
            return Some(0);
        }
        let is_of_project = name == "llama.cpp";
        let runs = words.first().is_some_and(|word| word == "--server" || word == "-s");
        if is_of_project && tag.starts_with("server") {
            Some(0)
        } else {
            (is_of_project && tag.starts_with("full") && runs).then_some(1)
        }
    }

    /// The path on the host of a path in the container.
    pub(crate) fn on_host(&self, path: &str) -> Option<String> {
        let below = |(host, inner): &(String, String)| {
            let rest = path.strip_prefix(inner.trim_end_matches('/'))?;
            let is_below = rest.is_empty() || rest.starts_with('/');
            is_below.then(|| (inner.len(), format!("{}{rest}", host.trim_end_matches('/'))))
        };
        // The innermost mount hides the others; a volume with a name has no path that is known.
        let (_, path) = self.mounts.iter().filter_map(below).max_by_key(|(length, _)| *length)?;
        path.starts_with(['/', '.']).then_some(path)
    }

    /// The flags with the paths of the host, and the first path that lies nowhere on it.
    pub(crate) fn options(&self, flags: Options) -> (Options, Option<String>) {
        let of_env = Options::from_env(self.env.iter().cloned()).unwrap_or_default();
        let mut missing = None;
        let all = flags.merged_over(&of_env);
        let moved = all.settings().iter().cloned().map(|mut setting| {
            if let (true, FlagValue::Text(path)) = (FILES.contains(&setting.flag.name()), &mut setting.value)
            {
                match self.on_host(path) {
                    Some(host) => *path = host,
                    None => missing = missing.take().or_else(|| Some(path.clone())),
                }
            }
            setting
        });
        let moved = moved.collect();
        (moved, missing)
    }
}

/// The place of the value of an option.
enum OptionValue<'a> {
    None,
    Joined(&'a str),
    Next,
}

/// The option of a word; `None` for the image.
fn option(word: &str) -> Option<(&str, OptionValue<'_>)> {
    if !word.starts_with('-') {
        return None;
    }
    if word.starts_with("--") {
        return Some(match word.split_once('=') {
            Some((option, value)) => (option, OptionValue::Joined(value)),
            None if SWITCHES.contains(&word) => (word, OptionValue::None),
            None => (word, OptionValue::Next),
        });
    }
    let letters = word.get(1..).unwrap_or_default();
    if letters.chars().all(|letter| LETTERS.contains(letter)) {
        return Some((word, OptionValue::None));
    }
    let end = letters.chars().next().map_or(1, |letter| 1 + letter.len_utf8());
    let (option, value) = word.split_at(end);
    Some((option, if value.is_empty() { OptionValue::Next } else { OptionValue::Joined(value) }))
}

/// `SOURCE:TARGET[:OPTIONS]`.
pub(crate) fn volume(text: &str) -> Option<(String, String)> {
    let mut parts = text.split(':');
    let (source, target) = (parts.next()?, parts.next()?);
    (!source.is_empty() && target.starts_with('/')).then(|| (source.to_owned(), target.to_owned()))
}

/// `type=bind,source=SOURCE,target=TARGET`.
fn mount(text: &str) -> Option<(String, String)> {
    let find = |names: &[&str]| {
        let mut pairs = text.split(',').filter_map(|part| part.split_once('='));
        pairs.find(|(name, _)| names.contains(name)).map(|(_, value)| value.to_owned())
    };
    Some((find(&["source", "src"])?, find(&["target", "destination", "dst"])?))
}

/// `llama-server`, `/opt/b10605/llama-server`, `ik-llama-server`; also behind a wrapper such as `taskset -c
/// 0-7`.
pub(crate) fn is_llama_server(argument: &str) -> bool {
    let name = argument.rsplit('/').next().unwrap_or(argument);
    name == "llama-server" || name.ends_with("-llama-server") || name.ends_with("_llama-server")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn flags(line: &str) -> Option<String> {
        let argv = words(line);
        let at = ContainerRun::of(&argv)?.llama_server(&argv)?;
        Some(argv[at + 1..].join(" "))
    }

    #[test]
    fn the_flags_of_a_server_begin_behind_its_program_or_its_image() {
        for (line, expected) in [
            (
                "docker run --rm -p ${PORT}:80 ghcr.io/ggml-org/llama.cpp:server -m /m/a.gguf",
                Some("-m /m/a.gguf"),
            ),
            ("docker run -it --init --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda13 -c 5", Some("-c 5")),
            ("podman run -d --pull=never x/llama.cpp:full-cuda --server -c 5", Some("-c 5")),
            ("docker run -v/opt/llama-server:/x --name n img:rocm /app/llama-server -c 5", Some("-c 5")),
            ("docker run --entrypoint /app/llama-server img -c 5", Some("-c 5")),
            ("sudo docker container run img llama-server -c 5", Some("-c 5")),
            ("docker run x/llama-server -c 5", Some("-c 5")),
            ("docker run x/llama.cpp:full --run -c 5", None),
            ("docker run --entrypoint sh x/llama.cpp:server -c 5", None),
            ("docker run vllm/vllm-openai:latest --model m", None),
            ("docker compose up a", None),
            ("docker run -p", None),
            ("llama-server -c 5", None),
        ] {
            assert_eq!(flags(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn mounts_ports_and_variables_are_read_in_each_form() {
        let argv = words(
            "docker run -v /opt/m:/models:ro --volume=cache:/cache --mount type=bind,src=/srv/x,dst=/models/x \
             -p 127.0.0.1:${PORT}:8080 --publish=9000:90/tcp -e LLAMA_ARG_CTX_SIZE=9 -eA=b --network host img llama-server",
        );
        let run = ContainerRun::of(&argv).unwrap();
        assert_eq!((run.image.as_str(), run.shares_network), ("img", true));
        for (path, host) in [
            ("/models/a.gguf", Some("/opt/m/a.gguf")),
            ("/models/x/b.gguf", Some("/srv/x/b.gguf")),
            ("/models", Some("/opt/m")),
            ("/models2/a", None),
            ("/cache/a", None),
            ("a.gguf", None),
        ] {
            assert_eq!(run.on_host(path).as_deref(), host, "{path}");
        }
        let ports: Vec<_> = run.ports.iter().map(|it| (it.outer.as_str(), it.inner.as_str())).collect();
        assert_eq!(ports, [("${PORT}", "8080"), ("9000", "90")]);
        assert_eq!(run.ports[0].address.as_deref(), Some("127.0.0.1"));
        assert_eq!(run.env.len(), 2);
    }

    #[test]
    fn a_path_that_no_mount_shows_is_named() {
        let run =
            ContainerRun { mounts: vec![("/h".to_owned(), "/m".to_owned())], ..ContainerRun::default() };
        let read = |line: &str| run.options(Options::from_argv(&words(line)).unwrap());
        let (options, missing) = read("-m /m/a.gguf -c 5");
        assert_eq!((options.text("--model"), missing), (Some("/h/a.gguf"), None));
        assert_eq!(read("-m /m/a.gguf --mmproj /x/p.gguf").1.as_deref(), Some("/x/p.gguf"));
    }
}
