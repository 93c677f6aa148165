//! Text to tokens and back, from the vocabulary in a GGUF file.
