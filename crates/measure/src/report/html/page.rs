//! The frame of the page, and its style.

/// Each theme names its colours once. `--arm-N` are Okabe and Ito's, which colour-blind readers can distinguish,
/// lightened for the dark theme.
const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1c1e21;--quiet:#5c636b;--line:#d9dde2;--panel:#f4f6f8;--good:#0b6b3a;--bad:#a8322a;\
--accent:#0b57a4;--warn:#8a5a00;--warn-panel:#fff6e0;--bar:#4a86c5;--stock:#8b939c}\
@media(prefers-color-scheme:dark){:root{--paper:#15181c;--ink:#e6e8eb;--quiet:#a0a8b1;--line:#343a42;--panel:#1e2329;--good:#5fd08f;\
--bad:#ff8a80;--accent:#7db7f5;--warn:#ffcc66;--warn-panel:#2f2712;--bar:#5b9be0;--stock:#78818b}}\
*{box-sizing:border-box}\
body{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:70rem;background:var(--paper);color:var(--ink);\
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif}\
h1{font-size:1.1rem;font-weight:600;margin:0 0 .5rem;color:var(--quiet)}\
h2{font-size:1.15rem;margin:2.5rem 0 .5rem}h2 small{font-weight:400;color:var(--quiet);margin-left:.5rem}\
h3{font-size:1rem;margin:1.5rem 0 .3rem}ul{margin:.4rem 0;padding-left:1.2rem}\
p{margin:.4rem 0;max-width:46rem}.quiet{color:var(--quiet);font-size:.9rem}\
.verdict{background:var(--panel);border-left:4px solid var(--accent);padding:1rem 1.25rem;border-radius:0 6px 6px 0}\
.choice{font-size:1.9rem;font-weight:700;line-height:1.2;margin:0 0 .5rem}\
.choice small{font-size:.95rem;font-weight:400;color:var(--quiet);margin-left:.75rem}\
.warning{background:var(--warn-panel);color:var(--warn);padding:.5rem .75rem;border-radius:6px;max-width:none}\
pre{background:var(--paper);border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem;white-space:pre-wrap;overflow-wrap:anywhere;margin:.75rem 0;\
font:.9rem/1.4 ui-monospace,'Cascadia Mono','DejaVu Sans Mono',monospace}\
code{font:.92em ui-monospace,'Cascadia Mono','DejaVu Sans Mono',monospace}\
code.whole{white-space:nowrap}\
.wide{overflow-x:auto;background:linear-gradient(90deg,var(--paper) 50%,transparent) 0/3rem 100% local,\
linear-gradient(270deg,var(--paper) 50%,transparent) 100%/3rem 100% local,linear-gradient(90deg,var(--line),transparent) 0/1rem 100%,\
linear-gradient(270deg,var(--line),transparent) 100%/1rem 100%;background-repeat:no-repeat}\
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;width:100%}\
th,td{padding:.3rem .55rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
.dense{font-size:.78rem}.dense th,.dense td{padding:.25rem .38rem}th:first-child,td:first-child{text-align:left}\
.matrix{font-size:.76rem}.matrix th{white-space:normal;vertical-align:bottom}.matrix th,.matrix td{padding:.2rem .3rem}.matrix .chosen{font-weight:700;color:var(--accent)}\
td.text{text-align:left;white-space:normal}th{font-weight:600;color:var(--quiet)}\
tr.chosen td{font-weight:600}tr.chosen td:first-child::before{content:'\u{25b8} ';color:var(--accent)}\
td .quiet{font-size:1em}.better{color:var(--good)}.worse{color:var(--bad)}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem;font-size:.9rem;margin:0}dt{color:var(--quiet)}\
dd{margin:0;overflow-wrap:anywhere}\
svg{display:block;width:100%;height:auto;margin:.5rem 0 1rem;overflow:visible}\
svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;fill:var(--ink);paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}svg .tick{fill:var(--quiet);font-size:11px}\
svg .grid{stroke:var(--line);stroke-width:1}svg .bar{fill:var(--bar)}svg .bar.stock{fill:var(--stock)}svg .whisker{stroke:var(--ink);stroke-width:1.5;fill:none}\
svg .one{stroke:var(--quiet);stroke-width:1;stroke-dasharray:4 3}svg .pareto{stroke:var(--accent);stroke-width:1.5;fill:none;stroke-dasharray:6 3}\
svg .leader{stroke:var(--quiet);stroke-width:1;fill:none}svg .dot{fill:var(--bar);stroke:var(--paper);stroke-width:1.5}svg .dot.stock{fill:var(--stock)}svg .dot.chosen{fill:var(--accent);stroke:var(--ink)}\
svg .series{fill:none;stroke-width:2}svg .saturated{stroke:var(--c);stroke-width:2}svg .chosen-name{font-weight:700}\
.c0{--c:#8b939c}.c1{--c:#0072b2}.c2{--c:#d55e00}.c3{--c:#009e73}.c4{--c:#b0568f}.c5{--c:#b38600}.c6{--c:#3f9fd6}.c7{--c:#6f4fb8}\
.c8{--c:#8c564b}.c9{--c:#5a7d1c}.c10{--c:#c03a5b}.c11{--c:#1f8a8a}.c12{--c:#1c1e21}\
@media(prefers-color-scheme:dark){.c1{--c:#56b4e9}.c2{--c:#ff8c42}.c3{--c:#33c99b}.c4{--c:#e394c6}.c5{--c:#f0c430}.c6{--c:#8fd3ff}.c7{--c:#b39ddb}\
.c8{--c:#c49c94}.c9{--c:#a9cf54}.c10{--c:#ff7f9f}.c11{--c:#5fd0d0}.c12{--c:#e6e8eb}}\
@media(max-width:40rem){body{padding:1.25rem .75rem 3rem}.choice{font-size:1.5rem}.choice small{display:block;margin:0}\
svg{min-width:46rem}dl{grid-template-columns:1fr}dt{margin-top:.4rem}}\
svg .series,svg .key{stroke:var(--c)}svg .point,svg .key-dot{fill:var(--c)}\
@media print{:root{--paper:#fff;--ink:#000;--quiet:#444;--line:#bbb;--panel:#fff;--warn-panel:#fff;--good:#0b6b3a;--bad:#a8322a;--accent:#0b57a4}\
body{max-width:none;padding:0;font-size:10.5pt;-webkit-print-color-adjust:exact;print-color-adjust:exact}section{break-inside:avoid}\
.verdict{border:1px solid #bbb;border-left:4px solid var(--accent)}.wide{overflow:visible}table{font-size:8pt}th,td{padding:.15rem .3rem}\
.matrix{font-size:6.5pt}.matrix th,.matrix td{padding:.08rem .12rem}tr{break-inside:avoid}thead{display:table-header-group}}";

/// Returns the page. It is XML as well as HTML, so that any tool can check and read it.
pub(super) fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"/><title>{title}</title><style>{STYLE}</style></head>\n\
         <body>{body}</body></html>\n"
    )
}
