package e2e

// Pictures of the console: of every page for people to look at, and those in the README. And what pages make of names,
// tags, errors and notes that are as long as they may be.

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// consolePages returns the URL of each page by its name, of services that have something for all of them: tasks of all
// kinds, of which steps fail with a stack trace, wait for a person, run and are repeated; nothing; and long names.
func consolePages(t *testing.T) map[string]string {
	t.Helper()
	empty := serve(t, "--fixture").ready.OrchestrationURL + "/console"
	pages := map[string]string{"welcome": empty, "empty": empty + "/tasks", "fixture": empty + "/fixture",
		"signin": serve(t, "--memory", "--config", configFile(t, consoleKeys)).ready.OrchestrationURL + "/console/tasks"}
	s, paths := picturedPages(t)
	for name, path := range paths {
		pages[name] = s.ready.OrchestrationURL + strings.Replace("/console"+path, "/console/..", "", 1)
	}
	s, paths = lengthyPages(t)
	for name, path := range paths {
		pages["long-"+name] = s.ready.OrchestrationURL + "/console" + path
	}
	return pages
}

// picturedPages returns the path of each page by its name, with a service that has something for all of them.
func picturedPages(t *testing.T) (s *program, pages map[string]string) {
	t.Helper()
	files := wire.Must(filepath.Glob("../templates/demo/*.json"))(t)
	demo := []string{}
	for _, file := range files {
		demo = append(demo, string(wire.ReadFile(t, file)))
	}
	s = serve(t, "--memory", "--config", configFile(t, "[orchestration.web]\nconfig_endpoint_enabled = true\n"+
		"[[events.subscribers]]\nname = \"billing\"\nurl = \"http://127.0.0.1:9/\"\nevents = [\"*\"]\nsecret = \""+signingSecret+"\"\n"),
		"--templates", templateDir(t, append(demo, orderTemplate, refundTemplate, longNames("large", 30, 20, 399),
			strings.Replace(testTemplate("paid", stepSpec{name: "pay", callable: "builtin:echo"}), `"name":"pay",`,
				`"name":"pay","publishes_events":[{"name":"payment.made","description":"","schema":{}}],`, 1),
			testTemplate("charge", stepSpec{name: "reserve", callable: "builtin:noop"},
				stepSpec{name: "charge", callable: "t.charge", after: []string{"reserve"}}),
			testTemplate("import", stepSpec{name: "fetch", callable: "builtin:noop"},
				stepSpec{name: "convert", callable: "builtin:sleep", config: `{"duration_ms":600000}`, after: []string{"fetch"}, timeout: 900},
				stepSpec{name: "book", callable: "builtin:noop", after: []string{"convert"}}),
			testTemplate("courier", stepSpec{name: "call", callable: "builtin:flaky", config: `{"failures":9}`,
				retry: `{"max_attempts":9,"backoff":"exponential","backoff_base_ms":600000,"max_backoff_ms":600000}`}))...),
		"--handler", fails(t, traced))
	a := s.api()
	create := func(namespace, name, more string) string {
		return a.create(fmt.Sprintf(`{"namespace":%q,"name":%q,"tags":["eu","urgent"]%s}`, namespace, name, more))
	}
	for range 9 {
		a.await(create("demo", "linear", ""), "complete")
		create("t", "charge", "")
	}
	failApprovals(a, 4, "insufficient funds")
	for n := range 3 {
		create("shop", "refund", fmt.Sprintf(`,"context":{"order_id":"ORD-%d"}`, n))
	}
	running, blocked, large := create("t", "import", ""), create("t", "charge", ""), create("t", "large", "")
	create("t", "courier", "")
	create("t", "paid", "")
	done := create("demo", "batch", "")
	a.do("DELETE", "/v1/tasks/"+create("demo", "approval", ""), "").want(200)
	waits := create("demo", "approval", "")
	a.await(large, "blocked_by_failures")
	a.await(blocked, "blocked_by_failures")
	a.await(done, "complete")
	return s, map[string]string{
		"tasks": "/tasks", "tasks-none": "/tasks?q=none", "failures": "/failures", "waits": "/waits", "dlq": "/dlq",
		"task-blocked": "/tasks/" + blocked + "?step=charge", "task-running": "/tasks/" + running, "task-waits": "/tasks/" + waits,
		"task-steps": "/tasks/" + waits + "?tab=Steps", "task-events": "/tasks/" + waits + "?tab=Events", "task-data": "/tasks/" + waits + "?tab=Data",
		"task-complete": "/tasks/" + done, "task-large": "/tasks/" + large, "templates": "/templates", "template": "/templates/t/charge/1.0.0",
		"analytics": "/analytics", "audit": "/audit", "service": "/service", "subscriber": "/subscribers/billing?deliveries=pending", "start": "/start", "start-form": "/start/shop/order/1.2.0", "nowhere": "/nowhere",
		"api": "/../api-docs/ui",
	}
}

// show opens a page at a width, as high as its content, and waits until that is there.
func (p *page) show(address string, width int) {
	p.t.Helper()
	p.size(width, 900)
	p.open(address)
	if strings.Contains(address, "api-docs") {
		p.waitText("operations ·")
	} else {
		p.settle()
	}
	p.size(width, min(max(900, int(p.eval("document.documentElement.scrollHeight").(float64))), 2600))
}

// TestConsolePictures takes pictures of every page for people to look at, on screens, tablets and phones, light and dark:
//
//	STEPWELL_SCREENSHOTS=/tmp/pictures go test -run TestConsolePictures ./e2e
func TestConsolePictures(t *testing.T) {
	dir := os.Getenv("STEPWELL_SCREENSHOTS")
	if dir == "" {
		wire.Lack(t, "STEPWELL_SCREENSHOTS", "needs a directory for the pictures: STEPWELL_SCREENSHOTS")
	}
	p := newPage(t)
	for name, address := range consolePages(t) {
		for _, width := range []int{1440, 1024, 390} {
			p.show(address, width)
			for _, scheme := range []string{"light", "dark"} {
				p.scheme(scheme)
				p.picture(dir, name, width, scheme)
			}
			p.scheme("light")
		}
	}
}

// lengthyPages returns the path of each page by its name, with a service whose names, tags, errors and notes are as long
// as they may be, without a space.
func lengthyPages(t *testing.T) (s *program, pages map[string]string) {
	t.Helper()
	name := func(of string) string { return of + strings.Repeat("verylong", 30) }
	message := name("error") + name("of")
	s = serve(t, "--memory", "--templates", templateDir(t,
		strings.NewReplacer(`"namespace":"shop"`, fmt.Sprintf(`"namespace":%q`, name("shop")[:29]), `"name":"refund"`, fmt.Sprintf(`"name":%q`, name("refund")),
			`"name":"decide"`, fmt.Sprintf(`"name":%q`, name("decide")), `["decide"]`, fmt.Sprintf(`[%q]`, name("decide"))).Replace(refundTemplate)))
	a := s.api()
	create := func(n string) string {
		tags := []string{}
		for n := range 8 {
			tags = append(tags, fmt.Sprintf("%q", name(fmt.Sprint("tag", n))))
		}
		return a.create(fmt.Sprintf(`{"namespace":%q,"name":%q,"tags":[%s],"context":{"order_id":%q},"reason":%q}`,
			name("shop")[:29], name("refund"), strings.Join(tags, ","), n+message, message))
	}
	id := create("1")
	failStep(a, id, name("decide"), message)
	a.await(id, "blocked_by_failures")
	waits := create("2")
	template := strings.Join([]string{name("shop")[:29], name("refund"), "1.0.0"}, "/")
	return s, map[string]string{
		"tasks": "/tasks", "failures": "/failures", "waits": "/waits", "dlq": "/dlq", "task": "/tasks/" + id + "?step=" + name("decide"),
		"steps": "/tasks/" + waits + "?tab=Steps", "events": "/tasks/" + waits + "?tab=Events", "data": "/tasks/" + waits + "?tab=Data",
		"templates": "/templates", "template": "/templates/" + template, "start": "/start", "start-form": "/start/" + template,
		"analytics": "/analytics", "filtered": "/tasks?namespace=" + name("shop")[:29] + "&tag=" + name("tag0"),
	}
}

// outOfView lists what is wider than the page or out of its view: figures, states, times and buttons. Only graphs,
// timelines, code and the links of the bar scroll sideways.
const outOfView = `(() => {
	const scrolls = "svg, pre, .tree, .timeline, .graph-view, .nav", wide = document.documentElement.scrollWidth - innerWidth;
	const hidden = [...document.querySelectorAll("#page :is(.num, .state, time, button, a.button, .chip, .took, .tries, .cause-count, .bars)")]
		.filter((e) => e.checkVisibility() && !e.closest(scrolls) && !e.closest("thead, .runs, .tablist")).filter((e) => {
			const r = e.getBoundingClientRect();
			return r.width > 1 && (r.right > innerWidth + 1 || r.left < -1);
		});
	return [wide > 0 ? "the page is " + wide + " pixels wider than its view" : "",
		...hidden.slice(0, 4).map((e) => "out of view: " + e.outerHTML.slice(0, 120))].filter(Boolean).join("\n");
})()`

// TestConsoleBarTellsOfMore opens the last page of the bar on a phone: its link is in view, and the side fades where there
// are more.
func TestConsoleBarTellsOfMore(t *testing.T) {
	p, _ := newConsole(t)
	p.size(390, 844)
	const mask = `getComputedStyle(document.querySelector("#nav")).maskImage.match(/[\d.]+px|transparent|rgba?\([^)]*\)/g).join()`
	for path, sides := range map[string]string{"/tasks": `["0px","3rem"]`, "/templates": `["3rem","3rem"]`, "/service": `["3rem","0px"]`} {
		p.open(path)
		p.settle()
		p.wait(`JSON.stringify(["--before", "--after"].map((name) => document.querySelector("#nav").style.getPropertyValue(name))) === ` + fmt.Sprintf("%q", sides))
		p.wait(`(() => { const r = document.querySelector("#nav [aria-current]").getBoundingClientRect(); return r.left >= 0 && r.right <= 390; })()`)
		if got := p.eval(mask); got == "" {
			t.Errorf("%s: the bar does not fade", path)
		}
	}
}

var updateImages = flag.Bool("update-images", false, "make the pictures of the README, and note what they show")

// orderPicture is the template of the task in the README.
func orderPicture() string {
	retry := func(ms int) string {
		return fmt.Sprintf(`{"max_attempts":5,"backoff":"exponential","backoff_base_ms":%d,"max_backoff_ms":%d}`, ms, ms)
	}
	sleep := func(name string, ms int, after ...string) stepSpec {
		return stepSpec{name: name, callable: "builtin:sleep", config: fmt.Sprintf(`{"duration_ms":%d}`, ms), after: after, timeout: 300}
	}
	text := testTemplate("order", stepSpec{name: "validate", callable: "builtin:noop"},
		sleep("reserve_stock", 900, "validate"), sleep("check_fraud", 2100, "validate"),
		stepSpec{name: "quote_shipping", callable: "builtin:flaky", config: `{"failures":2}`, retry: retry(900), after: []string{"validate"}},
		sleep("charge_card", 1200, "reserve_stock", "check_fraud"), sleep("pack", 200_000, "charge_card"),
		stepSpec{name: "approve", callable: "person", after: []string{"charge_card"}},
		stepSpec{name: "book_courier", callable: "builtin:flaky", config: `{"failures":4}`, retry: retry(50_000), after: []string{"charge_card", "quote_shipping"}},
		stepSpec{name: "ship", callable: "builtin:noop", after: []string{"pack", "approve", "book_courier"}},
		stepSpec{name: "notify", callable: "builtin:noop", after: []string{"ship"}})
	return strings.NewReplacer(`"namespace":"t"`, `"namespace":"shop"`, "1.0.0", "2.1.0").Replace(text)
}

// shownText is the text of a page without what differs from run to run, and with fonts: times, ids, the axis, sums of
// times and names that are cut.
const shownText = `document.body.innerText.replace(/Critical path: .*/, "Critical path: …").replace(/[0-9a-f]{8}…[0-9a-f]{12}/g, "ID")
	.replace(/\w+ \d+, \d+, [\d:]+ [AP]M UTC/g, "TIME").replace(/\d[\d.,]*( (µs|ms|s|min)\b)?/g, "#")
	.replace(/just now/g, "# ago").replace(/for less than #/g, "for #").replace(/\w+…\w+/g, "…").split(/\s*\n\s*/).filter((line) => !/^#*$/.test(line)).join("\n") + "\n"`

// TestConsoleReadmeImages checks that the page in the pictures of the README has the same texts as when these were made:
//
//	LONG_TESTS=1 go test ./e2e -run TestConsoleReadmeImages -update-images
func TestConsoleReadmeImages(t *testing.T) {
	p, s := newConsole(t, "--templates", templateDir(t, orderPicture()))
	p.size(1280, 1260)
	p.command("Emulation.setTimezoneOverride", object{"timezoneId": "UTC"}, nil)
	p.command("Emulation.setLocaleOverride", object{"locale": "en-US"}, nil)
	p.openTask(s.api().create(`{"namespace":"shop","name":"order","tags":["eu"]}`))
	for name, text := range map[string]string{"quote_shipping": "Complete", "pack": "Running", "approve": "Ready", "book_courier": "Retry"} {
		p.waitNode(name, text)
	}
	p.waitText("has waited for")
	const images, texts = "../docs/images/console-", "../docs/images/console.txt"
	if *updateImages {
		p.waitText("created 15 s ago")
		wire.WriteFile(t, texts, []byte(p.eval(shownText).(string)))
		for _, scheme := range []string{"light", "dark"} {
			p.scheme(scheme)
			wire.WriteFile(t, images+scheme+".png", p.capture())
		}
	}
	want := string(wire.ReadFile(t, texts))
	if same, _ := p.holdsSoon(fmt.Sprintf("%s === %q", shownText, want)); !same { // soon: what is due comes a moment later than the state
		t.Errorf("the page of a task has changed since the pictures of the README were made; make them again with -update-images.\ngot:\n%s\nwant:\n%s", p.eval(shownText), want)
	}
}

// TestConsoleTimes reads each page in each form of times, in Tokyo: the titles of relative times and of events, and the
// axes, titles and tables of charts are in the form and in the zone that is chosen.
func TestConsoleTimes(t *testing.T) {
	p, s := newConsole(t)
	p.command("Emulation.setTimezoneOverride", object{"timezoneId": "Asia/Tokyo"}, nil)
	p.command("Emulation.setLocaleOverride", object{"locale": "en-US"}, nil)
	id := s.api().create(`{"namespace":"demo","name":"failing"}`)
	s.api().await(id, "blocked_by_failures")
	now := time.Now()
	const whole = `[...document.querySelectorAll("#page :is(time, .at)")].map((e) => e.title || e.querySelector("title")?.textContent).join("\n")`
	const brief = `[...document.querySelectorAll(".chart-box .tick:not(.end), details td:first-child, .hit title")].map((e) => e.textContent.split(" · ")[0]).join("\n")`
	for form, want := range map[string]struct{ whole, brief, hour string }{
		"Local times": {`, 20\d\d, .* GMT\+9$`, `\d\d:\d\d$`, now.UTC().Add(9 * time.Hour).Format("15:")},
		"UTC":         {`, 20\d\d, .* UTC$`, `\d\d:\d\d UTC$`, now.UTC().Format("15:")},
		"ISO 8601":    {`^20\d\d-\d\d-\d\dT[\d:.]+Z$`, `\d\d:\d\d UTC$`, now.UTC().Format("15:")},
	} {
		p.open("/service")
		p.choose("Times", form)
		for _, path := range []string{"/tasks", "/failures", "/dlq", "/tasks/" + id + "?tab=Events"} {
			p.open(path)
			p.settle()
			p.wait(whole + ` !== ""`)
			for _, line := range strings.Split(p.eval(whole).(string), "\n") {
				if !regexp.MustCompile(want.whole).MatchString(line) {
					t.Errorf("%s, %s: got the time %q", form, path, line)
				}
			}
		}
		p.open("/analytics")
		p.wait(`document.querySelector(".chart .hit")`)
		p.clickText("The figures as a table")
		all := p.eval(brief).(string)
		for _, line := range strings.Split(all, "\n") {
			if !regexp.MustCompile(want.brief).MatchString(line) {
				t.Errorf("%s: got %q in the charts", form, line)
			}
		}
		if !strings.Contains(all, want.hour) {
			t.Errorf("%s: got %q in the charts; want times of the hour %s", form, all, want.hour)
		}
	}
}

// mislabelled lists the controls whose name lacks the text that they show, without signs and punctuation: who says to the
// computer what is shown must reach them (WCAG 2.5.3).
const mislabelled = `(() => {
	const plain = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, " ").trim();
	return [...document.querySelectorAll(":is(a, button, summary, [role=tab], [role=button])[aria-label]")]
		.filter((e) => e.checkVisibility() && !plain(e.ariaLabel).includes(plain(e.innerText ?? "")))
		.map((e) => e.ariaLabel + " on " + e.innerText).join("\n");
})()`

// TestConsoleSwitches switches the keys off, which lasts, and on again.
func TestConsoleSwitches(t *testing.T) {
	p, _ := openConsole(t, "/tasks")
	p.waitText("No task yet")
	p.key("?")
	p.click("dialog input")
	p.key("Escape")
	p.open("/tasks")
	p.wait(`document.querySelector("#find").onclick`)
	p.eval(`document.body.addEventListener("keydown", (e) => { window.pressed = e.key; })`)
	for _, key := range []string{"c", "q", "g", "m", "?"} {
		p.key(key)
		p.wait(fmt.Sprintf("pressed === %q", key))
		if moved := p.eval(`location.pathname.endsWith("/tasks") && !document.querySelector("dialog")`); moved != true {
			t.Errorf("%s still does something", key)
		}
	}
	p.click("#keys")
	p.wait(`document.querySelector("dialog input").checked === false`)
	p.click("dialog input")
	p.key("Escape")
	p.key("g", "m")
	p.wait(`location.pathname.endsWith("/templates")`)
}
