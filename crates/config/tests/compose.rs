//! Tests of Compose files: services of engines become models that `docker compose` starts.

use plimsoll_config::{CommandKind, Configuration, Launch};

fn read(text: &str) -> Configuration {
    let env = |name: &str| (name == "MODELS").then(|| "/srv/models".to_owned());
    plimsoll_config::parse_each("stack/compose.yaml", text, &env).unwrap()
}

const STACK: &str = r#"
name: stack
x-base: &base
  image: ghcr.io/ggml-org/llama.cpp:server-cuda
services:
  chat:
    <<: *base
    ports: ["127.0.0.1:${CHAT:-8081}:8080"]
    volumes: ["${MODELS}:/models:ro"]
    command: ["-m", "/models/chat.gguf", "-c", "8192", "--host", "0.0.0.0"]
  embed:
    image: kyuz0/toolbox:rocm
    ports: ["8085:8085"]
    volumes:
      - {type: bind, source: ./embed, target: /m}
    environment: {LLAMA_ARG_CTX_SIZE: 512}
    command: >
      llama-server --model /m/e.gguf
      --port 8085
  vllm:
    image: vllm/vllm-openai:latest
    ports: ["8000:8000"]
    command: --model org/m --gpu-memory-utilization 0.5
  closed:
    image: ghcr.io/ggml-org/llama.cpp:server
    command: -m /models/x.gguf -c 8192
  unset:
    image: ghcr.io/ggml-org/llama.cpp:server
    ports: ["1:8080"]
    command: -m ${NOWHERE} -c 8192
  router:
    image: ghcr.io/ggml-org/llama.cpp:server
    environment: [LLAMA_ARG_MODELS_PRESET=/models.ini]
  .template: {image: "ghcr.io/ggml-org/llama.cpp:server"}
  web: {image: open-webui}
"#;

#[test]
fn services_of_engines_are_models_and_others_are_left_out() {
    let roster = read(STACK);
    let names: Vec<&str> = roster.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["chat", "embed", "vllm"]);
    let [chat, embed, vllm] = &roster.models[..] else { panic!("three models") };
    assert_eq!(chat.launch.upstream(1), "http://127.0.0.1:8081");
    let options = chat.launch.options().unwrap();
    assert_eq!(
        (options.text("--model"), options.text("--ctx-size")),
        (Some("/srv/models/chat.gguf"), Some("8192"))
    );
    let options = embed.launch.options().unwrap();
    assert_eq!(options.text("--model"), Some("./stack/embed/e.gguf"));
    assert_eq!(options.text("--ctx-size"), Some("512"));
    assert_eq!(
        (embed.launch.upstream(1).as_str(), vllm.kind),
        ("http://127.0.0.1:8085", Some(CommandKind::Vllm))
    );
    let Launch::Command { argv, stop, .. } = &chat.launch else { panic!("a command") };
    assert_eq!(argv.join(" "), "docker compose -f stack/compose.yaml up --no-log-prefix chat");
    assert_eq!(stop.as_ref().unwrap().join(" "), "docker compose -f stack/compose.yaml stop chat");
    let refused: Vec<(&str, String)> =
        roster.refused.iter().map(|model| (model.name.as_str(), model.error.to_string())).collect();
    assert_eq!((refused[0].0, refused[1].0), ("closed", "unset"));
    assert!(refused[0].1.contains("publishes no port") && refused[1].1.contains("`NOWHERE`"), "{refused:?}");
    assert!(roster.warnings.iter().any(|warning| warning.text.contains("`router` serves several models")));
}

#[test]
fn a_file_without_an_engine_says_so() {
    let roster = read("services:\n  web: {image: open-webui}\n");
    assert!(roster.models.is_empty() && roster.refused.is_empty());
    assert!(
        roster.warnings[0]
            .to_string()
            .contains("no service of this Compose file runs an engine that serves one model")
    );
    assert!(plimsoll_config::parse_each("c.yml", "services: [a]\n", &|_| None).is_err());
}
