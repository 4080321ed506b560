package e2e

// The graph of a task: readable from the start, at every scale.

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// unreadable lists the texts of nodes in view that are smaller than 11 pixels or leave their node.
const unreadable = `[...document.querySelectorAll(".cards .node text")].filter((e) => {
	const size = parseFloat(e.getAttribute("font-size")) * e.getScreenCTM().a, face = e.parentNode.querySelector(".face").getBoundingClientRect();
	const box = e.getBoundingClientRect();
	return box.width > 0 && (size < 11 || box.right > face.right + 1 || box.left < face.left || box.bottom > face.bottom + 2);
}).map((e) => e.textContent).slice(0, 3).join("; ")`

// longNames returns layers of steps with long names, of which one fails.
func longNames(name string, count, width, fails int) string {
	step := fmt.Sprintf(`"name":"s%d","type":"standard","handler":{"callable":`, fails)
	text := strings.Replace(layers(name, count, width), step+`"builtin:noop","initialization":{}`, step+`"builtin:fail","initialization":{"retryable":false}`, 1)
	return regexp.MustCompile(`"s(\d)`).ReplaceAllString(text, `"normalize_the_records_of_customer_$1`)
}

// TestConsoleGraphReadable opens graphs of 40 and of 600 steps and zooms: no label is smaller than 11 pixels or leaves its
// node, names keep their beginning and their end, and boxes without names have a legend. It finds a step by its name and
// the one that failed, and the edges that it marks are those that are drawn.
func TestConsoleGraphReadable(t *testing.T) {
	p, s := newConsole(t, "--templates", templateDir(t, longNames("mid", 8, 5, 22), longNames("large", 30, 20, 399)))
	for name, zooms := range map[string][]string{"mid": {"", "-", "-", "+", "+", "+"}, "large": {"", "-", "-", "+", "+"}} {
		id := s.api().create(`{"namespace":"t","name":"` + name + `"}`)
		s.api().await(id, "blocked_by_failures")
		for _, width := range []int{1440, 390} {
			p.size(width, 900)
			p.openTask(id)
			p.wait(`document.querySelector(".node.bad")`)
			for _, zoom := range zooms {
				p.eval(`document.querySelector(".graph-view").focus()`)
				if zoom != "" {
					p.key(zoom)
				}
				bad := any("")
				for tries := 0; tries < 10 && (tries == 0 || bad != ""); tries++ { // until it is sharp again after the zoom
					bad = p.eval(`new Promise((done) => setTimeout(() => requestAnimationFrame(() => done(` + unreadable + `)), 300))`)
				}
				if bad != "" {
					t.Errorf("%s at %d pixels, zoomed %q: %v cannot be read", name, width, zoom, bad)
				}
			}
		}
	}
	large := s.api().create(`{"namespace":"t","name":"large"}`)
	s.api().await(large, "blocked_by_failures")
	p.size(1440, 900)
	p.openTask(large)
	p.clickText("Fit")
	p.wait(`document.querySelector(".far") && document.querySelector(".graph .legend").innerText.startsWith("Failed 1")`)
	p.inspect("graph-fit")
	p.clickText("Failed 1")
	p.wait(`document.querySelector(".step-card h2").textContent === "normalize_the_records_of_customer_399"`)
	p.wait(`(() => { // each marked edge is a drawn one
		const parts = (e) => e.getAttribute("d").split(/(?=M)/), drawn = new Set([...document.querySelectorAll(".edges .edge")].flatMap(parts));
		const lit = parts(document.querySelector(".lit"));
		return lit.length === 12 && lit.every((d) => drawn.has(d));
	})()`)
	p.clickText("Steps")
	p.fill(".step-list input", "customer_57")
	p.click(".step-list tbody button")
	p.wait(`document.querySelector(".step-card h2").textContent === "normalize_the_records_of_customer_57"`)

	s = serve(t, "--memory")
	p.service = s.ready.OrchestrationURL
	p.openTask(s.api().create(`{"namespace":"demo","name":"batch","context":{"total_items":10000,"batch_size":10}}`))
	p.wait(`[...document.querySelectorAll(".node .label")].some((e) => e.textContent === "count × 1,000")`)
}
