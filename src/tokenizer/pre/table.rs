//! The table of supported pre-tokenizers.
//!
//! The patterns are llama.cpp's, even if a model was trained with another tokenizer. For example,
//! the original patterns of GPT-4o and Tekken differ for the case of letters outside ASCII.

/// A pre-tokenizer.
#[derive(Debug)]
pub(super) struct Entry {
    /// The names in `tokenizer.ggml.pre`.
    pub names: &'static [&'static str],
    /// Regular expressions. The first splits the text; each following one splits both the matches
    /// of the previous one and the pieces between them.
    pub steps: &'static [&'static str],
    /// Whether a word that is a token becomes that token even if merges would not produce it.
    pub ignore_merges: bool,
    /// Whether BOS is added if the file does not specify it.
    pub add_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"'(?i-u:[sdmt]|re|ve|ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"'(?i-u:[sdmt]|re|ve|ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Groups of three digits, counted from the end of a number. Text before a number goes with its first
/// group. No automaton matches this pattern: `Step` has code for it, as llama.cpp.
pub(super) const THOUSANDS: &str = r"\d{1,3}(?=(?:\d{3})*\b)";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

/// Returns an entry without special rules.
const fn plain(names: &'static [&'static str], steps: &'static [&'static str]) -> Entry {
    Entry { names, steps, ignore_merges: false, add_bos: false }
}

/// Returns an entry with precedence of whole-word tokens over merges.
const fn whole_words(names: &'static [&'static str], steps: &'static [&'static str]) -> Entry {
    Entry { ignore_merges: true, ..plain(names, steps) }
}

pub(super) const TABLE: &[Entry] = &[
    plain(
        &[
            "gpt-2",
            "a.x-4.0",
            "exaone4",
            "gigachat",
            "granite-docling",
            "jais",
            "mellum",
            "mpt",
            "olmo",
            "phi-2",
            "trillion",
        ],
        &[GPT2],
    ),
    plain(
        &[
            "smollm",
            "codeshell",
            "command-r",
            "exaone",
            "mellum2",
            "minerva-7b",
            "refact",
            "starcoder",
        ],
        &[r"\p{N}", GPT2],
    ),
    Entry {
        add_bos: true,
        ..whole_words(
            &[
                "llama-bpe",
                "falcon-h1",
                "falcon3",
                "lfm2",
                "llama-v3",
                "llama3",
                "midm-2.0",
                "pixtral",
            ],
            &[LLAMA3],
        )
    },
    plain(&["chatglm-bpe", "dbrx", "smaug-bpe"], &[LLAMA3]),
    whole_words(&["glm4", "glm5"], &[LLAMA3]),
    whole_words(
        &["minicpm5"],
        &[
            r"\p{N}{1,3}",
            r"'(?i-u:[sdmt]|re|ve|ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    plain(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "f2llmv2",
            "grok-2",
            "hunyuan",
            "kormo",
            "megrez",
            "solar-open",
            "stablelm2",
        ],
        &[QWEN2],
    ),
    plain(
        &["qwen35"],
        &[
            r"'(?i-u:[sdmt]|re|ve|ll)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    plain(&["laguna"], &[r"[^\n]+|\n+", QWEN2]),
    plain(
        &["ufakzeka"],
        &[r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    ),
    plain(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[
            r"'(?i-u:[sdmt]|re|ve|ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
    ),
    plain(
        &["seed-coder"],
        &[
            r"'(?i-u:[sdmt]|re|ve|ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    plain(
        &["exaone-moe"],
        &[
            r"'(?i-u:[sdmt]|re|ve|ll)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
    ),
    Entry {
        add_bos: true,
        ..whole_words(
            &["tekken"],
            &[
                r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ],
        )
    },
    plain(
        &["gpt-4o", "kanana2", "llama4", "minimax-m2", "talkie"],
        &[
            r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+(?:'(?i-u:[sdmt]|re|ve|ll))?|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*(?:'(?i-u:[sdmt]|re|ve|ll))?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    whole_words(
        &["youtu"],
        &[
            r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
            r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'(?i-u:[sdmt]|re|ve|ll))?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    plain(
        &["cohere2moe", "tiny_aya"],
        &[
            THOUSANDS,
            r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'(?i-u:[sdmt]|re|ve|ll))?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    plain(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    // The spaces in a character range of the original are left out: `\s` matches them first.
    plain(
        &["deepseek-llm"],
        &[
            r"[\r\n]",
            r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
            r"\s?[!-/:-~！-／：-～‘-‟、-。]+",
            r"\s+$",
            r"[[一-龥ࠀ-一가-\u{D7FF}]&&\S]+",
            r"\p{N}+",
        ],
    ),
    plain(
        &["deepseek-coder"],
        &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[[一-龥ࠀ-一가-\u{D7FF}]&&\S]+", r"\p{N}"],
    ),
    plain(
        &["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"],
        &[
            r"\p{N}{1,3}",
            r"[一-龥぀-ゟ゠-ヿ]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
        ],
    ),
    plain(
        &["spark2_5"],
        &[
            r"\p{N}{1,3}",
            r"[一-龥぀-ゟ゠-ヿ]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##,
            r"\p{N}",
        ],
    ),
    Entry {
        add_bos: true,
        ..plain(
            &["chameleon"],
            &[
                "<sentinel:[0-9]+>",
                "(?:IMGIMG)[A-I]{1,4}Z",
                r"[\t\n]|    |  ",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                GPT2,
            ],
        )
    },
    plain(&["bloom", "gpt3-finnish", "poro-chat"], &[BLOOM]),
    plain(&["viking"], &[BLOOM, r"\p{N}"]),
    // For vocabularies that spell characters, not bytes. Their merges extend over whole lines.
    Entry { add_bos: true, ..plain(&["gemma4"], &[r"[^\n]+|\n+"]) },
];
