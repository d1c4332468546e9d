package escape

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// A tile is one guarantee of one target: what was claimed, and what was seen.
type tile struct {
	Name, State string
	Segments    []segment
	Text        string
}

// A segment of a bar is a verdict with its share.
type segment struct {
	Verdict Verdict
	Percent float64
}

// tiles sums the verdicts up by guarantee; what was only skipped has none.
func (r *Report) tiles(target string) []tile {
	counts := map[string]map[Verdict]int{}
	state := map[string]string{}
	for i := range r.Results {
		res := &r.Results[i]
		if res.Target != target || res.Verdict == VerdictSkipped {
			continue
		}
		name := string(res.Guarantee)
		if counts[name] == nil {
			counts[name] = map[Verdict]int{}
		}
		counts[name][res.Verdict]++
		state[name] = res.Claim
	}
	var list []tile
	for _, name := range profiles.GuaranteeNames() {
		n := counts[name]
		if n == nil {
			continue
		}
		t := tile{Name: name, State: state[name], Segments: segments(n)}
		var words []string
		for _, v := range Verdicts {
			if n[v] > 0 {
				words = append(words, fmt.Sprintf("%d %s", n[v], v))
			}
		}
		t.Text = strings.Join(words, ", ")
		list = append(list, t)
	}
	return list
}

// segments are the parts of a bar, but for what was skipped.
func segments(n map[Verdict]int) (list []segment) {
	total := 0
	for v, k := range n {
		if v != VerdictSkipped {
			total += k
		}
	}
	for _, v := range []Verdict{VerdictBlocked, VerdictDegraded, VerdictVacuous, VerdictError, VerdictEscaped} {
		if n[v] > 0 {
			list = append(list, segment{v, 100 * float64(n[v]) / float64(total)})
		}
	}
	return list
}

// writeHTML writes one page that needs nothing else: scorecard, claims, matrix,
// evidence, environment.
func writeHTML(w io.Writer, r *Report) error {
	type card struct {
		Target string
		Counts []struct {
			Verdict Verdict
			N       int
		}
		Worst, Grade string
		Share        int
		Bar          []segment
		Tiles        []tile
	}
	page := struct {
		*Report
		Targets []string
		Cards   []card
		Rows    [][]*Result
		Began   string
		Took    string
		Columns []string
		Depths  []map[string]any
	}{Report: r, Targets: r.targets, Rows: r.rows(), Began: r.Began.Format("2006-01-02 15:04 MST"), Took: r.Took.Round(1e8).String()}
	for _, target := range r.targets {
		n := r.counts(target)
		c := card{Target: target}
		for _, v := range Verdicts {
			c.Counts = append(c.Counts, struct {
				Verdict Verdict
				N       int
			}{v, n[v]})
		}
		held, tried := n[VerdictBlocked]+n[VerdictDegraded], n[VerdictBlocked]+n[VerdictDegraded]+n[VerdictEscaped]
		if tried > 0 {
			c.Share = 100 * held / tried
		}
		worst := -1
		for i := range r.Results {
			if res := &r.Results[i]; res.Target == target && res.failed(Info) {
				worst = max(worst, int(res.Severity))
			}
		}
		c.Worst, c.Grade = "no escape", "held"
		if worst >= 0 {
			c.Worst, c.Grade = "worst escape: "+Severity(worst).String(), Severity(worst).String()
		}
		c.Bar, c.Tiles = segments(n), r.tiles(target)
		page.Cards = append(page.Cards, c)
	}
	page.Columns = layerColumns(r.Layers)
	for _, d := range depths(r.Layers, r.strict) {
		page.Depths = append(page.Depths, map[string]any{"Name": d.name, "All": d.all, "One": d.one, "Two": d.two, "Goal": d.goal(), "Holds": d.holds()})
	}
	slices.SortStableFunc(page.Rows, func(a, b []*Result) int { return worstOf(a) - worstOf(b) })
	return htmlPage(r).Execute(w, page)
}

func worstOf(row []*Result) int {
	best := len(Verdicts)
	for _, res := range row {
		best = min(best, slices.Index(Verdicts, res.Verdict))
	}
	return best*10 + int(Critical-row[0].Severity)
}

// htmlPage is parsed when it is wanted: this package is linked into a program
// that starts often.
func htmlPage(r *Report) *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"printable":   printable,
		"evidence":    func(res *Result) string { return res.evidence() + r.note(res) },
		"mark":        func(res *Result) string { return marks[res.Verdict] },
		"legend":      func() []Verdict { return Verdicts },
		"verdictMark": func(v Verdict) string { return marks[v] },
		"join":        strings.Join,
		"stops":       func(row LayerRow, layer string) bool { return slices.Contains(row.Stopped, layer) },
		"explain": func(id string) string {
			if p := Find(id); p != nil {
				return p.Explain
			}
			return ""
		},
	}).Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>pccrun escape</title>
<style>
:root{--bg:#fbfbfa;--fg:#1d1f21;--dim:#6b7075;--line:#e3e3df;--card:#fff;--blocked:#2c7a4b;--degraded:#a36a00;--escaped:#b3261e;--vacuous:#6d4aa8;--skipped:#8a8f94;--error:#b3261e}
@media(prefers-color-scheme:dark){:root{--bg:#16181a;--fg:#e6e6e3;--dim:#9aa0a6;--line:#2c2f33;--card:#1d2023;--blocked:#6cc48d;--degraded:#e0a94a;--escaped:#ff8a80;--vacuous:#b79cf0;--skipped:#7d8389;--error:#ff8a80}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:1100px;margin:0 auto;padding:32px 20px 80px}h1{font-size:24px;margin:0}h2{font-size:17px;margin:40px 0 12px}
.dim{color:var(--dim)}.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(240px,1fr));gap:14px;margin-top:24px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px}
.card b{font-size:30px;display:block;line-height:1.2}.bar{height:8px;border-radius:4px;background:var(--line);margin:8px 0 10px;overflow:hidden;display:flex;gap:1px}.bar i{display:block;height:100%;background:currentColor}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(190px,1fr));gap:10px}.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:9px 12px;font-size:13px}.tile .bar{height:5px;margin:7px 0 5px}.tile div:first-child{display:flex;justify-content:space-between}
.sev{display:inline-block;min-width:64px;text-align:center;font-size:12px;border-radius:99px;padding:1px 9px;border:1px solid var(--line);color:var(--dim)}.sev.critical{color:var(--escaped);border-color:currentColor}.sev.high{color:var(--degraded);border-color:currentColor}
nav input{font:inherit;padding:3px 12px;border:1px solid var(--line);border-radius:99px;background:var(--card);color:var(--fg);margin:0 0 10px}td.v i{font-style:normal;font-weight:400;font-size:12px;margin-left:5px}
.card span{margin-right:10px;white-space:nowrap}
table{border-collapse:collapse;width:100%;background:var(--card);border:1px solid var(--line);border-radius:10px}
th,td{text-align:left;padding:6px 10px;border-top:1px solid var(--line);vertical-align:top}th{position:sticky;top:0;background:var(--card);font-size:13px;color:var(--dim);z-index:1}
td.v{text-align:center;font-weight:600}td>code{white-space:nowrap}.wide{overflow-x:auto}.matrix th{font-size:11px;padding:6px 4px}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
.blocked{color:var(--blocked)}.degraded{color:var(--degraded)}.escaped{color:var(--escaped)}.vacuous{color:var(--vacuous)}.skipped{color:var(--skipped)}.error{color:var(--error)}
details summary{cursor:pointer;list-style:none}details[open] summary{margin-bottom:6px}.box{border-left:3px solid var(--line);padding-left:12px;margin:4px 0}
nav button{font:inherit;padding:3px 12px;margin:0 6px 10px 0;border:1px solid var(--line);border-radius:99px;background:var(--card);color:var(--fg);cursor:pointer}nav button.on{border-color:var(--fg)}
</style></head><body><main>
<h1>pccrun escape</h1><div class="dim">{{.Began}}, {{.Took}}, {{len .Rows}} probes</div>
{{if .Interrupted}}<p class="error">{{.Interrupted.Error}}: what had not ended by then is skipped</p>{{end}}
<div class="cards">{{range .Cards}}<div class="card"><div class="dim">{{printable .Target}}</div><b>{{.Share}} %</b><div class="bar">{{range .Bar}}<i class="{{.Verdict}}" style="width:{{.Percent}}%"></i>{{end}}</div>
<div class="{{if eq .Grade "held"}}blocked{{else}}escaped{{end}}">{{.Worst}}</div><div>{{range .Counts}}{{if .N}}<span class="{{.Verdict}}">{{.N}} {{.Verdict}}</span>{{end}}{{end}}</div></div>{{end}}</div>
{{range .Cards}}<h2>Guarantees{{if gt (len $.Cards) 1}} of {{printable .Target}}{{end}}</h2><div class="tiles">{{range .Tiles}}<div class="tile"><div><code>{{.Name}}</code><span class="{{if eq .State "kept"}}blocked{{else if eq .State "weak"}}degraded{{else}}dim{{end}}">{{.State}}</span></div><div class="bar">{{range .Segments}}<i class="{{.Verdict}}" style="width:{{.Percent}}%"></i>{{end}}</div><span class="dim">{{.Text}}</span></div>{{end}}</div>{{end}}
<h2>Probes</h2><p class="dim">{{range legend}}<span class="{{.}}">{{verdictMark .}}</span> {{.}} &nbsp; {{end}}</p>
<nav><button class="on" data-v="">all</button>{{range legend}}<button data-v="{{.}}">{{.}}</button>{{end}}<input type="search" placeholder="find" aria-label="find a probe"></nav>
<table id="probes"><tr><th>probe<th>severity<th>guarantee{{range .Targets}}<th>{{printable .}}{{end}}</tr>
{{range .Rows}}{{$first := index . 0}}<tr data-v="{{range .}}{{.Verdict}} {{end}}"><td><details><summary><code>{{$first.ID}}</code> {{$first.Name}}</summary><div class="box"><p>{{explain $first.ID}}</p>{{if $first.Expect}}<p class="dim">Expected: {{$first.Expect}}</p>{{end}}
{{range .}}<p><span class="{{.Verdict}}">{{.Verdict}}</span> {{printable .Target}}{{if .Claim}} <span class="dim">(claimed {{.Claim}})</span>{{end}}<br>{{evidence .}}{{range .Findings}}<br><span class="degraded">{{.}}</span>{{end}}{{if .Control.Detail}}<br><span class="dim">control: {{printable .Control.Detail}}</span>{{end}}<br><code>{{printable .Reproduce}}</code></p>{{end}}
{{if $first.Refs}}<p class="dim">{{join $first.Refs ", "}}</p>{{end}}</div></details><td><span class="sev {{$first.Severity}}">{{$first.Severity}}</span><td><code>{{$first.Guarantee}}</code>{{range .}}<td class="v {{.Verdict}}" title="{{.Verdict}}">{{mark .}}{{if eq (len $.Targets) 1}} <i>{{.Verdict}}</i>{{end}}{{end}}</tr>
{{end}}</table>
{{if .Layers}}<h2>Which layers stop it with all others off</h2>{{range .Depths}}<p>{{.Name}}: {{.All}} critical and high probes, {{.One}} stopped by a layer or more, {{.Two}} by two or more. {{.Goal}}: <span class="{{if .Holds}}blocked{{else}}escaped{{end}}">{{if .Holds}}holds{{else}}does not hold{{end}}</span></p>{{end}}
<div class="wide"><table class="matrix"><tr><th>probe<th>severity{{range .Columns}}<th>{{.}}{{end}}</tr>{{range $row := .Layers}}<tr><td><code>{{.ID}}</code><td>{{.Severity}}{{range $.Columns}}<td class="v blocked">{{if stops $row .}}✓{{end}}{{end}}</tr>{{end}}</table></div>{{end}}
{{range $target, $claims := .Claims}}{{if $claims}}<h2>What {{printable $target}} claims</h2><table><tr><th>guarantee<th>state<th>mechanism<th>cause</tr>
{{range $claims}}<tr><td><code>{{.Guarantee}}</code><td class="{{if eq .State "kept"}}blocked{{else if eq .State "weak"}}degraded{{else}}dim{{end}}">{{.State}}<td>{{printable .Mechanism}}<td class="dim">{{printable .Cause}}</tr>{{end}}</table>{{end}}{{end}}
<h2>Environment</h2><table>{{range .Environment}}<tr><td>{{.Name}}<td><code>{{printable .Value}}</code></tr>{{end}}</table>
<script>let v='',q=document.querySelector('nav input');const show=()=>document.querySelectorAll('#probes tr[data-v]').forEach(r=>r.hidden=v&&!r.dataset.v.split(' ').includes(v)||!r.textContent.toLowerCase().includes(q.value.toLowerCase()));q.oninput=show;document.querySelectorAll('nav button').forEach(b=>b.onclick=()=>{document.querySelectorAll('nav button').forEach(x=>x.classList.toggle('on',x==b));v=b.dataset.v;show()})</script>
</main></body></html>
`))
}
