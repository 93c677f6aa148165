# A Homebrew formula, for a tap.
class RopeCpu < Formula
  desc "GGUF inference on a laptop's CPU, past the trained context length"
  homepage "@REPOSITORY@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    on_arm do
      url "@URL@/@ARCHIVE aarch64-apple-darwin@"
      sha256 "@SHA256 aarch64-apple-darwin@"
    end
    on_intel do
      url "@URL@/@ARCHIVE x86_64-apple-darwin@"
      sha256 "@SHA256 x86_64-apple-darwin@"
    end
  end

  on_linux do
    on_arm do
      url "@URL@/@ARCHIVE aarch64-unknown-linux-musl@"
      sha256 "@SHA256 aarch64-unknown-linux-musl@"
    end
    on_intel do
      url "@URL@/@ARCHIVE x86_64-unknown-linux-musl@"
      sha256 "@SHA256 x86_64-unknown-linux-musl@"
    end
  end

  def install
    bin.install "rope-cpu"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/rope-cpu.bash" => "rope-cpu"
    fish_completion.install "completions/rope-cpu.fish"
    zsh_completion.install "completions/_rope-cpu"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/rope-cpu --version")
  end
end
