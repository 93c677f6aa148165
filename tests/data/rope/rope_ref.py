"""Numpy float64 reference of RoPE context-extension methods.

Conventions (all functions)
  n_rot      number of rotated dimensions of a head (even); n_rot/2 *pairs*, pair i = 0 .. n_rot/2-1
  theta_i    inv_freq[i] = base^(-2i/n_rot), radians per token
  angle      pos * inv_freq[i]        (pos is the integer token position, 0-based)
  attn_scale the factor that multiplies cos AND sin, for q AND k ("mscale" in llama.cpp,
             "attention_factor"/"attention_scaling" in HF).  Logits of the rotated part scale by
             attn_scale**2.  Un-rotated dims (partial rotary) are NOT scaled.
  s          extension factor L'/L  (llama.cpp freq_scale = 1/s)

Every "theta only" method returns Rope(inv_freq, attn_scale).
"""
import math
from collections import namedtuple

import numpy as np

Rope = namedtuple("Rope", "inv_freq attn_scale")
PI2 = 2.0 * math.pi


# --------------------------------------------------------------------------------------------
# 0. base
# --------------------------------------------------------------------------------------------
def inv_freq(n_rot, base=10000.0):
    """theta_i = base^(-2i/n_rot).  (HF computes 1/(base**(2i/n_rot)); equal to <= 2 ulp.)"""
    i2 = np.arange(0, n_rot, 2, dtype=np.float64)
    return 1.0 / (float(base) ** (i2 / n_rot))


def none(n_rot, base=10000.0):
    return Rope(inv_freq(n_rot, base), 1.0)


# --------------------------------------------------------------------------------------------
# 1. linear / PI
# --------------------------------------------------------------------------------------------
def linear(n_rot, base, factor):
    """PI (Chen et al. 2023): g(m)=m/s, h(theta)=theta; identical to theta/s.  attn_scale 1."""
    return Rope(inv_freq(n_rot, base) / float(factor), 1.0)


# --------------------------------------------------------------------------------------------
# 2. NTK-aware
# --------------------------------------------------------------------------------------------
def ntk_base(n_rot, base, alpha):
    return float(base) * float(alpha) ** (n_rot / (n_rot - 2.0))


def ntk_static(n_rot, base, alpha):
    """base' = base * alpha^(d/(d-2));  theta'_i = theta_i * alpha^(-2i/(d-2)); theta'_{d/2-1} = theta/alpha."""
    return Rope(inv_freq(n_rot, ntk_base(n_rot, base, alpha)), 1.0)


def ntk_dynamic_alpha_hf(factor, max_pos, seq_len):
    """HF "dynamic": seq_len is clamped from below to max_pos (=> alpha >= 1)."""
    seq_len = max(float(seq_len), float(max_pos))
    return factor * seq_len / max_pos - (factor - 1.0)


def ntk_dynamic_hf(n_rot, base, factor, max_pos, seq_len):
    return ntk_static(n_rot, base, ntk_dynamic_alpha_hf(factor, max_pos, seq_len))


def ntk_dynamic_alpha_fu1(s, C, C_test):
    """Variant 1: alpha_test = s*C_test/C - (s-1), s in [1, C'/C].  (No clamp in the text;
    we clamp C_test to >= C, as HF does, so that alpha >= 1.)"""
    return s * max(float(C_test), float(C)) / C - (s - 1.0)


def ntk_dynamic_alpha_fu2(C, C_prime, C_test, s=None):
    """Variant 2: alpha_test = s*max(C', C_test)/C - (s-1), s = C'/(2C) unless given."""
    if s is None:
        s = C_prime / (2.0 * C)
    return s * max(float(C_prime), float(C_test)) / C - (s - 1.0)


def ntk_dynamic_fu1(n_rot, base, s, C, C_test):
    return ntk_static(n_rot, base, ntk_dynamic_alpha_fu1(s, C, C_test))


def ntk_dynamic_fu2(n_rot, base, C, C_prime, C_test, s=None):
    return ntk_static(n_rot, base, ntk_dynamic_alpha_fu2(C, C_prime, C_test, s))


def ntk_mixed(n_rot, base, k, b=0.75):
    """bojone "NTK-RoPE-mixed" (kexue.fm/9706): theta_i * exp(-a*(i+1)^b), a = ln k/(d/2)^b."""
    h = n_rot // 2
    a = math.log(k) / h ** b
    return Rope(inv_freq(n_rot, base) * np.exp(-a * np.arange(1, h + 1, dtype=np.float64) ** b), 1.0)


# --------------------------------------------------------------------------------------------
# 3. YaRN
# --------------------------------------------------------------------------------------------
def yarn_corr_dim(n_rot, n_ctx_orig, n_rotations, base):
    return n_rot * math.log(n_ctx_orig / (n_rotations * PI2)) / (2.0 * math.log(base))


def yarn_corr_range(n_rot, n_ctx_orig, base, beta_fast=32.0, beta_slow=1.0, truncate=True):
    lo = yarn_corr_dim(n_rot, n_ctx_orig, beta_fast, base)
    hi = yarn_corr_dim(n_rot, n_ctx_orig, beta_slow, base)
    if truncate:
        lo, hi = float(math.floor(lo)), float(math.ceil(hi))
    return max(lo, 0.0), min(hi, n_rot - 1.0)      # n_rot-1, not n_rot/2-1: as all sources do


def yarn_mscale(s, mscale=1.0):
    return 1.0 if s <= 1.0 else 0.1 * mscale * math.log(s) + 1.0


def yarn_llamacpp(n_rot, base, freq_scale, n_ctx_orig, ext_factor=1.0, attn_factor=1.0,
                  beta_fast=32.0, beta_slow=1.0, freq_factors=None):
    """What the ggml rope kernel does for given *resolved* op parameters.
    angle_i(p) = p * ret.inv_freq[i].   freq_factors divide theta before anything else.
    NOTE the kernel multiplies attn_factor by (1 + 0.1 ln(1/freq_scale)) iff ext_factor != 0."""
    h = n_rot // 2
    extrap = float(base) ** (-2.0 * np.arange(h, dtype=np.float64) / n_rot)
    if freq_factors is not None:
        extrap = extrap / np.asarray(freq_factors, dtype=np.float64)
    interp = freq_scale * extrap
    m = float(attn_factor)
    if ext_factor == 0.0:
        return Rope(interp, m)
    lo, hi = yarn_corr_range(n_rot, n_ctx_orig, base, beta_fast, beta_slow, True)
    y = (np.arange(h, dtype=np.float64) - lo) / max(0.001, hi - lo)
    ramp = (1.0 - np.minimum(1.0, np.maximum(0.0, y))) * ext_factor     # 1 = extrapolate
    m *= 1.0 + 0.1 * math.log(1.0 / freq_scale)
    return Rope(interp * (1.0 - ramp) + extrap * ramp, m)


def yarn_hf(n_rot, base, factor, n_ctx_orig, attention_factor=None, mscale=None, mscale_all_dim=None,
            beta_fast=32.0, beta_slow=1.0, truncate=True):
    """transformers _compute_yarn_parameters (4.57 / 5.x)."""
    if attention_factor is None:
        if mscale and mscale_all_dim:
            attention_factor = yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim)
        else:
            attention_factor = yarn_mscale(factor)
    h = n_rot // 2
    pos = float(base) ** (np.arange(0, n_rot, 2, dtype=np.float64) / n_rot)
    extrap, interp = 1.0 / pos, 1.0 / (factor * pos)
    lo, hi = yarn_corr_range(n_rot, n_ctx_orig, base, beta_fast, beta_slow, truncate)
    if lo == hi:
        hi += 0.001
    ramp = np.clip((np.arange(h, dtype=np.float64) - lo) / (hi - lo), 0.0, 1.0)
    e = 1.0 - ramp
    return Rope(interp * (1.0 - e) + extrap * e, attention_factor)


def yarn_paper(n_rot, base, s, n_ctx_orig, alpha=1.0, beta=32.0):
    """YaRN paper: ramp is linear in r_i = L*theta_i/2pi (NOT in i, as all the code is)."""
    th = inv_freq(n_rot, base)
    g = np.clip((n_ctx_orig * th / PI2 - alpha) / (beta - alpha), 0.0, 1.0)
    return Rope((1.0 - g) * th / s + g * th, yarn_mscale(s))


def yarn_dynamic(n_rot, base, n_ctx_orig, seq_len, **kw):
    """Dynamic-YaRN (jquesnelle/yarn LlamaDynamicYaRN...): s = max(1, seq_len/L)."""
    s = max(1.0, float(seq_len) / n_ctx_orig)
    return none(n_rot, base) if s == 1.0 else yarn_hf(n_rot, base, s, n_ctx_orig, **kw)


def deepseek_softmax_mul(factor, mscale_all_dim):
    """DeepSeek V2/V3 extra factor on the softmax scale (whole logit, rope+nope)."""
    return yarn_mscale(factor, mscale_all_dim) ** 2 if mscale_all_dim else 1.0


def resolve_llamacpp(meta=None, cli=None, arch="llama"):
    """Port of src/llama-context.cpp (tree 11434): how GGUF metadata + CLI become the op parameters.
    meta keys: n_ctx_train, freq_base, type, factor, scale_linear, original_context_length, attn_factor,
               yarn_log_multiplier, and (only the archs that read them) yarn_ext_factor, yarn_attn_factor,
               yarn_beta_fast, yarn_beta_slow.
    cli keys:  rope_scaling ('none'|'linear'|'yarn'), rope_freq_base, rope_freq_scale (or rope_scale),
               yarn_orig_ctx, yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow."""
    meta, cli = dict(meta or {}), dict(cli or {})
    # hparams
    n_ctx_train = meta.get("n_ctx_train", 0)
    base_train = meta.get("freq_base", 10000.0)
    type_train = meta.get("type", "linear")
    f = meta.get("factor", meta.get("scale_linear", 0.0))
    scale_train = 1.0 if f == 0.0 else 1.0 / f
    orig = meta.get("original_context_length", n_ctx_train)
    log_mul = meta.get("yarn_log_multiplier", 0.0)
    if arch == "deepseek2":
        log_mul = log_mul / 0.1                      # [TAG_DEEPSEEK2_YARN_LOG_MUL_FIX]
    # cparams
    if "rope_scale" in cli:
        cli["rope_freq_scale"] = 1.0 / cli["rope_scale"]
    ext = cli.get("yarn_ext_factor", -1.0)
    ext = ext if ext >= 0 else meta.get("yarn_ext_factor", -1.0)
    attn = cli.get("yarn_attn_factor", -1.0)
    attn = attn if attn >= 0 else meta.get("yarn_attn_factor", 1.0)
    bf = cli.get("yarn_beta_fast", -1.0)
    bf = bf if bf >= 0 else meta.get("yarn_beta_fast", 32.0)
    bs = cli.get("yarn_beta_slow", -1.0)
    bs = bs if bs >= 0 else meta.get("yarn_beta_slow", 1.0)
    base = cli.get("rope_freq_base", 0.0) or base_train
    fs = cli.get("rope_freq_scale", 0.0) or scale_train
    octx = cli.get("yarn_orig_ctx", 0) or orig or n_ctx_train
    typ = cli.get("rope_scaling") or type_train
    if typ == "none":
        fs = 1.0
    if ext < 0:
        ext = 1.0 if typ == "yarn" else 0.0
    if ext != 0.0:
        factor = 1.0 / fs
        if log_mul != 0.0:
            ms = 1.0
            if arch == "deepseek2" and log_mul != 1.0:
                ms = log_mul
            attn = yarn_mscale(factor, ms) / yarn_mscale(factor, log_mul)   # CLI/meta value discarded
        else:
            attn = yarn_mscale(factor, 1.0)                                 # CLI/meta value discarded
        attn *= 1.0 / (1.0 + 0.1 * math.log(factor))                        # cancels the kernel's factor
    attn *= meta.get("attn_factor", 1.0)
    return dict(base=base, freq_scale=fs, n_ctx_orig=octx, ext_factor=ext, attn_factor=attn,
                beta_fast=bf, beta_slow=bs, type=typ)


# --------------------------------------------------------------------------------------------
# 4. llama3
# --------------------------------------------------------------------------------------------
def llama3(n_rot, base, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, n_ctx_orig=8192):
    th = inv_freq(n_rot, base)
    wl = PI2 / th
    low_wl, high_wl = n_ctx_orig / low_freq_factor, n_ctx_orig / high_freq_factor
    smooth = (n_ctx_orig / wl - low_freq_factor) / (high_freq_factor - low_freq_factor)
    mid = (1.0 - smooth) * th / factor + smooth * th
    out = np.where(wl > low_wl, th / factor, np.where(wl < high_wl, th, mid))
    return Rope(out, 1.0)


def llama3_freq_factors(n_rot, base, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, n_ctx_orig=8192):
    """Content of GGUF tensor rope_freqs.weight: divisors of theta (1 .. factor)."""
    th = inv_freq(n_rot, base)
    wl = PI2 / th
    low_wl, high_wl = n_ctx_orig / low_freq_factor, n_ctx_orig / high_freq_factor
    smooth = (n_ctx_orig / wl - low_freq_factor) / (high_freq_factor - low_freq_factor)
    mid = 1.0 / ((1.0 - smooth) / factor + smooth)
    return np.where(wl > low_wl, factor, np.where(wl < high_wl, 1.0, mid))


# --------------------------------------------------------------------------------------------
# 5. LongRoPE
# --------------------------------------------------------------------------------------------
def longrope_attn_factor(factor, n_ctx_orig):
    return 1.0 if factor <= 1.0 else math.sqrt(1.0 + math.log(factor) / math.log(n_ctx_orig))


def longrope(n_rot, base, short_factor, long_factor, n_ctx_orig, max_pos, seq_len,
             attention_factor=None, factor=None):
    """seq_len > n_ctx_orig -> long set.  HF: seq_len = max position + 1 of the current forward;
    llama.cpp: seq_len := allocated n_ctx_seq (fixed at context creation)."""
    f = np.asarray(long_factor if seq_len > n_ctx_orig else short_factor, dtype=np.float64)
    assert f.shape == (n_rot // 2,)
    if factor is None:
        factor = max_pos / n_ctx_orig
    if attention_factor is None:
        attention_factor = longrope_attn_factor(factor, n_ctx_orig)
    return Rope(inv_freq(n_rot, base) / f, attention_factor)


# --------------------------------------------------------------------------------------------
# 6. DPRoPE  (eq. 5-9 of its paper)
# --------------------------------------------------------------------------------------------
CODE_EPS = 2.0 ** -14        # torch.finfo(torch.float16).tiny, added to every *count* by the released code


def angle_hist(theta, n, b=360, m0=0):
    """Counts (len(theta), b): bin k of angle (m*theta mod 2pi), m = m0 .. m0+n-1.
    k = floor((m*theta mod 2pi) * (b/2pi)), clamped to b-1."""
    m = np.arange(m0, m0 + n, dtype=np.float64)
    out = np.zeros((len(theta), b), dtype=np.int64)
    c = b / PI2
    for i, t in enumerate(theta):
        k = np.floor(np.mod(m * float(t), PI2) * c).astype(np.int64)
        np.clip(k, 0, b - 1, out=k)
        out[i] = np.bincount(k, minlength=b)
    return out


def kl_pairs(cnt_ext, n_ext, cnt_orig, n_orig, kl="code", eps=None):
    """Per-pair disturbance D^i, natural log, SUM over the b bins.
    kl='code' : KL(P_L || P_L'):  sum_k p ln(p/q), p=(cnt_orig+e)/L, q=(cnt_ext+e)/L'.   <- reproduces Table 3
    kl='paper': eq. 8 as printed: sum_k F' ln((F'+eps)/(F+eps)), F'=cnt_ext/L', F=cnt_orig/L."""
    if kl == "code":
        e = CODE_EPS if eps is None else eps
        p, q = (cnt_orig + e) / n_orig, (cnt_ext + e) / n_ext
        return (p * (np.log(p) - np.log(q))).sum(axis=1)
    if kl == "paper":
        e = 1e-6 if eps is None else eps
        fe, fo = cnt_ext / n_ext, cnt_orig / n_orig
        return (fe * np.log((fe + e) / (fo + e))).sum(axis=1)
    raise ValueError(kl)


def disturbance(theta_new, theta_orig, L, L_new, b=360, kl="code", eps=None, m0=0):
    """D(P_L', P_L) = (2/d) sum_i D^i = mean over pairs.  Returns (mean, per-pair)."""
    d = kl_pairs(angle_hist(theta_new, L_new, b, m0), L_new, angle_hist(theta_orig, L, b, m0), L, kl, eps)
    return float(d.mean()), d


DP = namedtuple("DP", "inv_freq attn_scale mask D_E D_I D delta t_range")


def dprope(n_rot, base, L, L_new, b=360, t=0.0, n_hat=None, s=None, kl="code", eps=None, m0=0):
    """eq. 9: theta_i/s if D^i_E > D^i_I + t else theta_i.
    n_hat (number of interpolated DIMENSIONS = 2 x pairs) overrides t: the n_hat/2 pairs with the largest
    delta_i = D_E - D_I are interpolated (ties: larger i first).  t_range = [lo, hi): every t in it gives this mask."""
    th = inv_freq(n_rot, base)
    s = float(L_new) / L if s is None else float(s)
    c0 = angle_hist(th, L, b, m0)
    D_E = kl_pairs(angle_hist(th, L_new, b, m0), L_new, c0, L, kl, eps)
    D_I = kl_pairs(angle_hist(th / s, L_new, b, m0), L_new, c0, L, kl, eps)
    delta = D_E - D_I
    h = n_rot // 2
    if n_hat is None:
        mask = delta > t
    else:
        assert n_hat % 2 == 0 and 0 <= n_hat <= n_rot
        order = sorted(range(h), key=lambda i: (-delta[i], -i))
        mask = np.zeros(h, bool)
        mask[order[: n_hat // 2]] = True
    lo = float(delta[~mask].max()) if (~mask).any() else -math.inf
    hi = float(delta[mask].min()) if mask.any() else math.inf
    out = np.where(mask, th / s, th)
    return DP(out, 1.0, mask, D_E, D_I, float(np.where(mask, D_I, D_E).mean()), delta, (lo, hi))


# --------------------------------------------------------------------------------------------
# 7. CLEX  (learned ODE; theta only, plus optional log-n query scale)
# --------------------------------------------------------------------------------------------
def clex_rhs(t, z, up, down, n_rot, ntk_base_const=10000.0, act="tanh"):
    """dz/dt.  up: (d/2, f*d), down: (f*d, d/2).  ntk_base_const is 10000 in the released code even when the
    model's rope_theta differs (ODELinear.forward does not pass base; commit f44639e)."""
    i2 = np.arange(0, n_rot, 2, dtype=np.float64)
    alpha = 1.0 if t < 1 else 2.0 * t - 1.0
    log_ntk = -(i2 / n_rot) * math.log(ntk_base_const) - (i2 / (n_rot - 2)) * math.log(alpha)
    drift = -2.0 * i2 / (n_rot - 2) / alpha                     # d/dt of log_ntk
    x = (z + log_ntk) @ up
    a = np.tanh(x) if act == "tanh" else x / (1.0 + np.exp(-x))  # silu
    return a @ down + drift


def clex_solve(n_rot, base, up, down, t_end, dt=0.01, act="tanh", ntk_base_const=10000.0):
    """inv_freq at integer t = 1..t_end.  torchdiffeq 'rk4' = Kutta 3/8 rule, fixed grid start + k*dt, last point
    snapped to t_end; values at interior integer t by linear interpolation in the straddling step."""
    f = lambda t, z: clex_rhs(t, z, up, down, n_rot, ntk_base_const, act)
    z = np.log(inv_freq(n_rot, base))
    outs = [np.exp(z)]
    n = math.ceil((t_end - 1.0) / dt + 1.0)
    grid = 1.0 + np.arange(n) * dt
    grid[-1] = t_end
    want = 2.0
    for t0, t1 in zip(grid[:-1], grid[1:]):
        h = t1 - t0
        k1 = f(t0, z)
        k2 = f(t0 + h / 3.0, z + h * k1 / 3.0)
        k3 = f(t0 + h * 2.0 / 3.0, z + h * (k2 - k1 / 3.0))
        k4 = f(t1, z + h * (k1 - k2 + k3))
        z1 = z + (k1 + 3.0 * (k2 + k3) + k4) * h * 0.125
        while want <= t_end and t1 >= want:
            outs.append(np.exp(z1 if t1 == want else z + (want - t0) / h * (z1 - z)))
            want += 1.0
        z = z1
    return np.array(outs)


def clex_t(seq_len, L, max_t):
    """Inference scale: ceil(seq_len/L), clamped to max_t.  t==1 -> plain RoPE."""
    return min(-(-int(seq_len) // int(L)), int(max_t))


def clex_query_scale(kv_len, L):
    """log_scale=True configs: q *= ln(kv_len)/ln(L) -- NOT clamped at 1 in the flash path of the released code."""
    return math.log(kv_len) / math.log(L)


# --------------------------------------------------------------------------------------------
# 8. methods that change the attention, as maps of (query pos i, key pos j), causal j <= i
#    logit_ij = <R(rel) q_i, k_j>  with angle rel*theta (rel may be fractional); None/mask = not attended
# --------------------------------------------------------------------------------------------
def logn_scale(i, train_len):
    """q_i multiplier used by ReRoPE / NTK-mixed: max(1, ln(i+1)/ln(train_len))."""
    return max(1.0, math.log(i + 1.0) / math.log(train_len))


def rel_rerope(i, j, w):
    return float(min(i - j, w))


def rel_leaky_rerope(i, j, w, k):
    d = i - j
    return float(d) if d < w else w + (d - w) / float(k)


def rel_self_extend(i, j, G, W):
    """LongLM: neighbours d < W exact; else floor(i/G) + W - W/G - floor(j/G)   (W/G is a float division)."""
    d = i - j
    return float(d) if d < W else float(i // G) + W - W / float(G) - float(j // G)


def rel_dca(i, j, c, w):
    """Dual chunk attention: chunks of s = c - w; keys at j mod s; the table of queries for the chunk before is
    (0..s) + s clamped to c, and older chunks use its last entry (both known programs)."""
    s = c - w
    before = [min(m + s, c) for m in range(s)]
    n = i // s - j // s
    query = i % s if n == 0 else before[i % s] if n == 1 else before[s - 1]
    return float(query - j % s)


def rel_lm_infinite(i, j, n_global, n_local, limit=None, kv_len=None):
    """Lambda mask.  Returns None if not attended.  d < n_local: exact; j < n_global: distance is the constant
    min(limit, kv_len-1) (limit = n_local in convert_llama_model)."""
    limit = n_local if limit is None else limit
    d = i - j
    if d < n_local:
        return float(d)
    if j < n_global:
        return float(min(limit, (i + 1 if kv_len is None else kv_len) - 1))
    return None


def llamacpp_grp_attn_positions(n_tokens, G, W):
    """Effective KV positions after n_tokens with llama.cpp --grp-attn-n G --grp-attn-w W (completion tool).
    Simulates seq_add/seq_div; closed form: c = n//W full windows; t < c*W -> t//G, else t - c*W*(G-1)/G."""
    assert W % G == 0
    pos = np.zeros(0, dtype=np.int64)
    n_past, ga_i = 0, 0
    for _ in range(n_tokens):
        while n_past >= ga_i + W:
            ib, bd = (G * ga_i) // W, (W // G) * (G - 1)
            dd = (W // G) - ib * bd - W
            pos[(pos >= ga_i) & (pos < n_past)] += ib * bd
            a = ga_i + ib * bd
            m = (pos >= a) & (pos < a + W)
            m2 = (pos >= a + W) & (pos < n_past + ib * bd)
            pos[m] //= G
            pos[m2] += dd
            n_past -= bd
            ga_i += W // G
        pos = np.append(pos, n_past)
        n_past += 1
    return pos


def apply_rope(x, pos, rope, style="norm"):
    """Rotate the first 2*len(inv_freq) dims of x at (possibly fractional) position pos.
    style 'norm': pairs (2i, 2i+1);  'neox': pairs (i, i + n_rot/2)."""
    x = np.array(x, dtype=np.float64)
    h = len(rope.inv_freq)
    c = np.cos(pos * rope.inv_freq) * rope.attn_scale
    s = np.sin(pos * rope.inv_freq) * rope.attn_scale
    if style == "norm":
        a, b = x[0:2 * h:2].copy(), x[1:2 * h:2].copy()
        x[0:2 * h:2], x[1:2 * h:2] = a * c - b * s, a * s + b * c
    else:
        a, b = x[:h].copy(), x[h:2 * h].copy()
        x[:h], x[h:2 * h] = a * c - b * s, a * s + b * c
    return x
