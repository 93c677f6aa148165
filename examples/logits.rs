//! Writes the logits after each token of a list, to compare with other programs.
//!
//! ```text
//! cargo run --release --example logits -- -m MODEL.gguf --tokens IDS.txt -o OUT.f32 --ctx 4096
//! ```
//! IDS.txt holds token ids between white space; OUT.f32 gets little-endian `f32`, one row of the
//! vocabulary's size for each token.

use std::{
    error::Error,
    fs,
    io::{BufWriter, Write},
    path::PathBuf,
};

use clap::Parser;
use rope_cpu::{
    Token,
    kv_cache::CacheType,
    model::{Model, Options, Session},
    rope::{FREQ_BASE, FREQ_SCALE, Flags, Rope, SCALE, SCALING, Scaling, Sourced, yarn},
};
use rope_cpu_kernels::Cpu;

#[derive(Parser)]
struct Args {
    /// Model file
    #[arg(short, long)]
    model: PathBuf,
    /// File of token ids
    #[arg(long)]
    tokens: PathBuf,
    /// File for the logits
    #[arg(short, long)]
    out: Option<PathBuf>,
    /// Context size
    #[arg(long, default_value_t = 4096)]
    ctx: usize,
    /// Tokens computed together
    #[arg(long, default_value_t = 512)]
    batch: usize,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// How keys and values are stored
    #[arg(long, default_value = "f16")]
    cache_type: CacheType,
    /// Write the rows of the last tokens only
    #[arg(long)]
    last: Option<usize>,
    /// Start afresh after so many tokens
    #[arg(long)]
    chunk: Option<usize>,
    /// Then continue with the likeliest tokens: print each, and by how much it won
    #[arg(long, default_value_t = 0)]
    greedy: usize,
    /// Instruction set
    #[arg(long)]
    isa: Option<String>,
    #[arg(long)]
    rope_scaling: Option<String>,
    #[arg(long)]
    rope_scale: Option<f64>,
    #[arg(long)]
    rope_freq_scale: Option<f64>,
    #[arg(long)]
    rope_freq_base: Option<f64>,
    #[arg(long)]
    yarn_orig_ctx: Option<usize>,
    #[arg(long)]
    yarn_ext_factor: Option<f64>,
    #[arg(long)]
    yarn_attn_factor: Option<f64>,
    #[arg(long)]
    yarn_beta_fast: Option<f64>,
    #[arg(long)]
    yarn_beta_slow: Option<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let model = Model::open(&args.model)?;
    let scaling = args.rope_scaling.as_deref().map(Scaling::named).transpose()?;
    let flags = Flags::default()
        .with_some(&SCALING, scaling.map(|scaling| scaling.name))
        .with_some(&SCALE, args.rope_scale)
        .with_some(&FREQ_SCALE, args.rope_freq_scale)
        .with_some(&FREQ_BASE, args.rope_freq_base)
        .with_some(&yarn::ORIG_CTX, args.yarn_orig_ctx)
        .with_some(&yarn::EXT_FACTOR, args.yarn_ext_factor)
        .with_some(&yarn::ATTN_FACTOR, args.yarn_attn_factor)
        .with_some(&yarn::BETA_FAST, args.yarn_beta_fast)
        .with_some(&yarn::BETA_SLOW, args.yarn_beta_slow);
    let context = Sourced::given(args.ctx, "--ctx");
    let plan = model.rope_plan(&flags, context)?;
    eprintln!("{plan}");
    let cpu = match &args.isa {
        Some(name) => Cpu::named(name).ok_or_else(|| format!("this CPU has no {name}"))?,
        None => Cpu::best(),
    };
    let options = Options {
        micro_batch: args.batch,
        keys: args.cache_type,
        values: args.cache_type,
        threads: args.threads.into(),
        cpu,
        ..Options::new(args.ctx)
    };
    let mut session = Session::new(&model, Rope::new(plan), options)?;

    let tokens: Vec<Token> = fs::read_to_string(&args.tokens)?
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let began = std::time::Instant::now();
    if let Some(path) = &args.out {
        let mut out = BufWriter::new(fs::File::create(path)?);
        let mut written = Ok(());
        for chunk in tokens.chunks(args.chunk.unwrap_or(tokens.len().max(1))) {
            session.truncate(0);
            let first = chunk.len().saturating_sub(args.last.unwrap_or(chunk.len()));
            session.evaluate(chunk, first..chunk.len(), &mut |_, logits| {
                let bytes: Vec<u8> = logits.iter().flat_map(|x| x.to_le_bytes()).collect();
                if written.is_ok() {
                    written = out.write_all(&bytes);
                }
            })?;
        }
        written?;
        out.flush()?;
        session.truncate(0);
    } else if args.greedy == 0 {
        session.evaluate(&tokens, 0..0, &mut |_, _| {})?;
    }
    eprintln!("{:.1} tokens/sec", tokens.len() as f64 / began.elapsed().as_secs_f64());
    let mut answer = None;
    for _ in 0..args.greedy {
        let go_on = &mut |_| std::ops::ControlFlow::Continue(());
        let logits = match answer {
            None => session.extend(&tokens, go_on)?,
            Some(token) => session.answer(token, go_on)?,
        };
        let Some(logits) = logits else { break };
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0);
        let second = (0..logits.len()).filter(|&i| i != best).map(|i| logits[i]);
        println!("{best} {}", logits[best] - second.fold(f32::NEG_INFINITY, f32::max));
        answer = Some(best as Token);
    }
    Ok(())
}
