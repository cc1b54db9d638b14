//! Tests that a healthy llama-server is not stopped when requests make it write alarming log lines.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::fleet::{self, Fleet, Member};
use crate::http;

const ASSERTION: &str = "/llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu:98: GGML_ASSERT(0) failed";
const CUDA_ERROR: &str = "ggml_cuda_error: CUDA error: out of memory";
const TORCH: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 600.00 MiB. GPU 0 has a total capacity of 1.00 GiB \
                     of which 1.00 MiB is free.";
const CUDA_MALLOC: &str = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2969.00 MiB on device 0: cudaMalloc failed: out of memory";

/// Time after which an engine that had been given up for its words would be dead.
const GIVEN_UP: Duration = Duration::from_secs(6);

/// A request: path and body.
pub(crate) type Shape = (&'static str, Vec<u8>);

/// Every shape, for the model `name`; the last lines of each log that doctor knows are among the prompts.
pub(crate) fn shapes(name: &str) -> Vec<Shape> {
    let lines = [ASSERTION, CUDA_ERROR, TORCH, CUDA_MALLOC].join("\n");
    let chat = |more: Value| {
        let mut body =
            json!({"model": name, "max_tokens": 2, "messages": [{"role": "user", "content": "a"}]});
        for (key, value) in more.as_object().expect("an object") {
            body[key] = value.clone();
        }
        ("/v1/chat/completions", body.to_string().into_bytes())
    };
    let raw = |rest: &str| ("/v1/chat/completions", format!("{{\"model\":\"{name}\",{rest}").into_bytes());
    let completion = |prompt: &str| {
        let body = json!({"model": name, "n_predict": 2, "prompt": prompt});
        ("/completion", body.to_string().into_bytes())
    };
    let mut shapes = vec![
        raw(&format!("\"x\":\"{ASSERTION}\u{1}\"}}")),
        raw(&format!("\"x\":{ASSERTION}}}")),
        raw(&format!("\"messages\":[{{\"role\":\"user\",\"content\":\"{TORCH}")),
        chat(json!({"grammar": format!("root ::= {ASSERTION}")})),
        chat(json!({"grammar": format!("{lines}\nroot ::= GGML_ASSERT(")})),
        chat(json!({"response_format": {"type": lines}})),
        chat(json!({"json_schema": {"$ref": format!("#/{lines}")}})),
        chat(json!({"json_schema": {"type": "string", "pattern": format!("^({lines}$")}})),
        chat(json!({"messages": [{"role": lines, "content": lines}]})),
        chat(
            json!({"tools": [{"type": "function", "function": {"name": lines, "parameters": {"type": lines}}}]}),
        ),
        chat(json!({"messages": lines, "stop": [lines], "user": lines})),
        chat(
            json!({"logit_bias": [[lines, 1]], "samplers": [lines], "chat_template_kwargs": {lines.as_str(): lines}}),
        ),
    ];
    shapes.extend(signs().iter().map(|words| completion(words)));
    shapes.push(completion(&lines));
    shapes
}

/// The last lines of every log in `data/logs`, each short enough for the model's context.
fn signs() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/logs");
    let mut logs: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .collect();
    logs.sort();
    let last = |path: &Path| {
        let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        text.chars().rev().take(600).collect::<Vec<_>>().into_iter().rev().collect()
    };
    logs.iter().map(|path| last(path)).collect()
}

/// Sends a request whose body need not be JSON.
pub(crate) fn send((path, body): &Shape, address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)?;
    Ok(stream)
}

#[test]
fn no_words_of_a_client_stop_an_engine_or_move_a_claim() {
    let member = Member::new("alpha", "tiny", "");
    let fleet = Fleet::start(&[member], "", |needs| 3 * needs[0]);
    let daemon = &fleet.daemon;
    let address = daemon.address;
    assert_eq!(fleet::chat(address, "alpha").status, 200);
    let (engines, claimed) = (daemon.engines(), daemon.claimed());
    let shapes = shapes("alpha");
    assert!(shapes.len() > 10 + 40, "{} shapes", shapes.len());
    let (mut refused, mut logged) = (0, false);
    for shape in &shapes {
        let answer = http::read(&send(shape, address).unwrap());
        assert!(
            answer.whole && matches!(answer.status, 200 | 400 | 500),
            "{}: {}",
            answer.status,
            answer.text()
        );
        refused += usize::from(answer.status != 200);
        assert_eq!(daemon.engines(), engines, "{}", String::from_utf8_lossy(&shape.1));
        // Looked for at once: the log keeps its last lines only.
        logged |= http::get(address, "/logs").text().contains("GGML_ASSERT(");
    }
    assert!(logged, "the words did not reach the log");
    assert!(refused >= 6, "{refused} were refused by the engine, whose log then holds their words");
    thread::sleep(GIVEN_UP);
    assert_eq!(fleet::chat(address, "alpha").status, 200);
    assert_eq!((daemon.engines(), daemon.claimed()), (engines, claimed));
    // A claim that had been raised would show at the next load.
    assert_eq!(http::post(address, "/unload", &Value::Null).status, 200);
    assert_eq!(fleet::chat(address, "alpha").status, 200);
    assert_eq!(daemon.claimed(), claimed);
    assert!(!daemon.talk().contains("engine ended"), "{}", daemon.talk());
}
