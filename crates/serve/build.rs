//! Packs the script of the page.

fn main() -> std::io::Result<()> {
    plimsoll_packed::pack_file("src/route/page/page.js")
}
