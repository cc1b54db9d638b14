//! Build script: compresses the web page's JavaScript.

fn main() -> std::io::Result<()> {
    plimsoll_packed::pack_file("src/route/page/page.js")
}
