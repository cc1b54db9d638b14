//! Build script: compresses the published JSON schema.

fn main() -> std::io::Result<()> {
    plimsoll_packed::pack_file("../../docs/reference/config.schema.json")
}
