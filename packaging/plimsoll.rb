# Homebrew formula of the release's archives for Linux.
class Plimsoll < Formula
  desc "Runs several local models on GPUs that cannot hold all of them"
  homepage "@REPOSITORY@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on :linux

  on_arm do
    url "@REPOSITORY@/releases/download/v@VERSION@/plimsoll-@VERSION@-linux-arm64.tar.gz"
    sha256 "@SHA256_ARM64@"
  end
  on_intel do
    url "@REPOSITORY@/releases/download/v@VERSION@/plimsoll-@VERSION@-linux-amd64.tar.gz"
    sha256 "@SHA256_AMD64@"
  end

  def install
    bin.install "bin/plimsoll"
    (lib/"plimsoll").install Dir["lib/plimsoll/*"]
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/plimsoll"
    zsh_completion.install "share/zsh/vendor-completions/_plimsoll"
    fish_completion.install "share/fish/vendor_completions.d/plimsoll.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/plimsoll --version")
  end
end
