//! Writes an OCI container image, without a container daemon.
//!
//! The output is one tar file in the OCI image layout, which podman, skopeo and docker can load.

use std::io;

use serde_json::{Value, json};

use super::options::Architecture;
use super::tree::FileTree;
use super::{VERSION, sha256};

const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Engines in it need no more than devices; the number is in no system's range of users.
const USER: &str = "65532:65532";

/// The image: one layer with the libraries of the system that the program needs, one with the product.
pub(super) fn image(
    tree: &FileTree,
    libraries: &FileTree,
    architecture: Architecture,
    date: u64,
) -> io::Result<Vec<u8>> {
    let mut layout = FileTree::default();
    let mut layers = Vec::new();
    let mut contents = Vec::new();
    for layer in [&system(libraries), tree] {
        let plain = layer.tar(date)?;
        contents.push(format!("sha256:{}", sha256(&plain)));
        layers.push(blob(&mut layout, LAYER, super::tree::gzip(&plain)?));
    }
    let configuration = json!({
        "architecture": architecture.to_string(),
        "os": "linux",
        "config": {
            "User": USER,
            "Env": [
                "PATH=/usr/local/bin:/usr/bin:/bin",
                "HOME=/tmp",
                "NVIDIA_VISIBLE_DEVICES=all",
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            ],
            "Entrypoint": ["/usr/bin/plimsoll"],
            "Cmd": ["serve", "/etc/plimsoll/plimsoll.toml"],
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "plimsoll",
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": contents },
    });
    let configuration = blob(&mut layout, CONFIGURATION, serde_json::to_vec(&configuration)?);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": configuration,
        "layers": layers,
    });
    let mut manifest = blob(&mut layout, MANIFEST, serde_json::to_vec(&manifest)?);
    manifest["platform"] = json!({ "architecture": architecture.to_string(), "os": "linux" });
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": format!("plimsoll:{VERSION}") });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest] });
    layout.file("index.json", 0o644, serde_json::to_vec(&index)?);
    layout.file("oci-layout", 0o644, r#"{"imageLayoutVersion":"1.0.0"}"#);
    layout.tar(date)
}

/// Adds a blob under its digest; its descriptor.
fn blob(layout: &mut FileTree, kind: &str, bytes: Vec<u8>) -> Value {
    let digest = sha256(&bytes);
    let descriptor = json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len() });
    layout.file(format!("blobs/sha256/{digest}"), 0o644, bytes);
    descriptor
}

/// The libraries, and what programs expect of any system.
fn system(libraries: &FileTree) -> FileTree {
    let mut system = libraries.clone();
    system.folder("tmp", 0o1777);
    system.folder("var/tmp", 0o1777);
    let passwd = "root:x:0:0:root:/root:/sbin/nologin\nplimsoll:x:65532:65532::/tmp:/sbin/nologin\n";
    system.file("etc/passwd", 0o644, passwd);
    system.file("etc/group", 0o644, "root:x:0:\nplimsoll:x:65532:\n");
    system
}
