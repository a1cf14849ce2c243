"""--help, options, run.cfg: what is said, where, and with which exit code."""

import json
import os
import re
import shutil

import harness as h
from harness import expect

COMMANDS = ["check", "init", "options", "status", "list", "log", "generate", "tokenize", "verify", "inspect", "export", "doctor"]


def test_help_and_version(folder):
    text = h.run("--help").stdout
    for command in COMMANDS + ["--set", "--plain"]:
        expect(command in text, "--help does not mention", command)
    expect(re.fullmatch(r"zenflow-console \d+\.\d+\.\d+.*\n", h.run("--version").stdout), "--version")
    for command in COMMANDS:
        expect(command in h.run(command, "--help").stdout, command, "--help says nothing of it")


def test_usage_errors(folder):
    expect("check" in h.run("chekc", "x.cfg", code=2).stderr, "the nearest command is not named")
    h.text_file(folder)
    expect("--plian" in h.run(h.cfg(folder), "--plian", code=2).stderr, "the wrong switch is not named")
    h.run("check", code=2)
    h.run("check", os.path.join(folder, "none.cfg"), code=(2, 7))


def test_options(folder):
    rows = json.loads(h.run("options", "--json").stdout)
    names = [r["name"] for r in rows]
    expect(len(names) == len(set(names)) and {"topk_ratio", "learning_rate", "seed", "sample_prompt"} <= set(names), "names", names)
    plain = h.run("options").stdout
    expect(all(n in plain for n in names), "the plain table lacks an option")


def test_readme_has_the_option_table(folder):
    table = h.run("options", "--markdown").stdout.strip()
    with open(os.path.join(h.SOURCE, "README.md"), encoding="utf-8") as f:
        found = re.search(r"<!-- options: begin[^\n]*-->\n(.*)\n<!-- options: end -->", f.read(), re.S)
    expect(found, "README.md has lost its markers")
    expect(
        found.group(1).strip() == table,
        "README.md: replace the table between the markers by the output of: zenflow-console options --markdown",
    )


def test_readme_has_the_command_table(folder):
    table = h.run("options", "--commands", "--markdown").stdout.strip()
    with open(os.path.join(h.SOURCE, "README.md"), encoding="utf-8") as f:
        found = re.search(r"<!-- commands: begin[^\n]*-->\n(.*)\n<!-- commands: end -->", f.read(), re.S)
    expect(
        found and found.group(1).strip() == table,
        "README.md: replace the table between the markers by the output of: zenflow-console options --commands --markdown",
    )


def test_all_errors_at_once(folder):
    path = h.write(
        os.path.join(folder, "bad.cfg"),
        "\n".join(
            [
                "[run]",
                "seed = one",
                "",
                "[modle]",
                "[train]",
                "learning_rat = 1e-3",
                "batch_size = 0",
                "schedule = cosin",
                "max_grad_norm = 1",
                "clip_norm = 1",
                "clip_norm = 2",
                "beta1 = 1.5",
                "no equals sign",
                "epsilon = nan",
                "[data]",
                'train = "open',
                "",
            ]
        ),
    )
    done = h.run("check", path, code=2)
    for line, word in (
        (2, "one"),
        (4, "model"),
        (6, "learning_rate"),
        (7, "0"),
        (8, "cosine"),
        (9, "clip_norm"),
        (11, "clip_norm"),
        (12, "1.5"),
        (13, ""),
        (14, "nan"),
        (16, ""),
    ):
        said = [text for text in done.stderr.splitlines() if re.match(r"zenflow-console: .*bad\.cfg:%d:\d+: " % line, text)]
        expect(said and word in said[0], f"line {line} ({word}): {done.stderr}")
    expect(done.stdout == "" or "bad.cfg" not in done.stdout, "errors belong on stderr")
    expect(os.listdir(folder) == ["bad.cfg"], "something was written")


def test_columns_point_at_the_value(folder):
    path = h.write(os.path.join(folder, "c.cfg"), "[train]\n   batch_size   =   many\n")
    expect("c.cfg:2:21: " in h.run("check", path, code=2).stderr, "column of the value")


def test_habits_are_told_the_right_name(folder):
    for habit, name in (
        ("max_grad_norm", "clip_norm"),
        ("gradient_accumulation_steps", "micro_batch"),
        ("num_train_epochs", "epochs"),
        ("save_steps", "save_every"),
    ):
        expect(name in h.run("check", h.cfg(folder), "--set", habit + "=1", code=2).stderr, habit)


def test_what_this_version_has_not_is_refused_by_name(folder):
    h.text_file(folder)
    for change, word in (
        ({"zenflow": {"strategy": "selected_only", "topk_ratio": 0}}, "topk_ratio"),
        ({"run": {"device": "sim"}}, "sim"),
    ):
        expect(word in h.run(h.cfg(folder, **change), "--plain", code=2).stderr, word)
        expect(not os.path.exists(os.path.join(folder, "out")), word, "left a run directory behind")


def test_a_run_beside_the_folder_of_its_cfg(folder):
    """Its directory is shown as one would type it, whatever leads there."""
    os.mkdir(os.path.join(folder, "configs"))
    h.text_file(os.path.join(folder, "configs"))
    for given, shown in (("../runs/x", "runs/x"), ("./../runs/x", "runs/x"), ("../configs/x", "configs/x"), ("x", "configs/x")):
        path = h.cfg(os.path.join(folder, "configs"), run={"dir": given})
        expect(json.loads(h.run("check", path, "--json").stdout)["options"]["dir"] == os.path.join(folder, shown), given, shown)


def test_check_trains_and_writes_nothing(folder):
    h.text_file(folder)
    path = h.cfg(folder)
    before = sorted(os.listdir(folder))
    expect("MiB" in h.run("check", path).stdout or "KiB" in h.run("check", path).stdout, "no memory table")
    report = json.loads(h.run("check", path, "--json").stdout, parse_constant=h.no_constant)
    expect(isinstance(report, dict) and report, "check --json")
    expect(sorted(os.listdir(folder)) == before, "check wrote something")


def test_set_overrides_and_is_checked(folder):
    h.text_file(folder)
    path = h.cfg(folder)
    h.run(path, "--plain", "--set", "steps=3", "--set", "valid_every=0")
    expect(h.last_step(os.path.join(folder, "out")) == 3, "--set steps=3 was not heeded")
    expect("topk_ratio" in h.run("check", path, "--set", "topk_ration=0.1", code=2).stderr, "nearest name")


def test_init_writes_a_run_cfg_that_check_accepts(folder):
    text = h.run("init").stdout
    expect("[run]" in text and "#" in text, "init: no commented run.cfg")
    h.copy_model(folder, "llama-multi-query-hd20")
    h.token_file(os.path.join(folder, "rows.safetensors"), 16, 32, 53)
    made = h.run("init", os.path.join(folder, "model"), os.path.join(folder, "rows.safetensors")).stdout
    h.run("check", h.write(os.path.join(folder, "made.cfg"), made))


def test_init_looks_for_what_it_is_given(folder):
    os.makedirs(os.path.join(folder, "models"))
    h.copy_model(folder, "llama-multi-query-hd20", os.path.join("models", "tiny-llama"))
    h.text_file(folder)
    for words, said in (
        (("models/tiny-lama/",), ("no such folder", "did you mean models/tiny-llama")),
        (("models",), ("without config.json", "did you mean models/tiny-llama")),
        (("text.txt",), ("MODEL is a file", "DATA behind it")),
        (("models/tiny-llama", "txt.txt"), ("DATA: there is no such file; did you mean text.txt",)),
        (("models/tiny-llama", "models"), ("DATA is a folder",)),
        (("nothing/at/all",), ("no such folder",)),
    ):
        done = h.run("init", *words, code=4, cwd=folder)
        expect(all(s in done.stderr for s in said) and done.stdout == "", words, done.stderr, done.stdout)
    expect("path = models/tiny-llama" in h.run("init", "models/tiny-llama", "text.txt", cwd=folder).stdout, "init")


def test_check_tells_what_a_start_would_do(folder):
    def check(code, *more):
        out = h.run("check", path, *more, code=code)
        report = json.loads(h.run("check", path, "--json", *more, code=code).stdout)
        expect("memory " in out.stdout and "options " in out.stdout and report["start"]["code"] == code, "no table", out.stdout, report)
        return report["start"]["would"], out

    h.text_file(folder)
    path, out = h.cfg(folder, train={"steps": 2, "valid_every": None}), os.path.join(folder, "out")
    would, said = check(0)
    expect(would == "begin" and "all is well" in said.stdout, would, said.stdout)
    h.run(path)
    would, said = check(0)
    expect(would == "nothing" and "--set dir=NAME" in said.stdout, would, said.stdout)
    would, said = check(0, "--set", "steps=9")
    expect(would == "continue" and "step-00000002.zfc, step 2" in said.stdout, would, said.stdout, said.stderr)
    would, said = check(1, "--set", "steps=9", "--set", "batch_size=8")
    expect(would == "refuse" and "it would be refused" in said.stdout and "batch_size 4 -> 8" in said.stderr, would, said.stdout, said.stderr)
    checkpoint = os.path.join(out, "checkpoints", "step-00000002.zfc")
    os.rename(checkpoint, checkpoint + ".away")
    would, said = check(1, "--set", "steps=9")
    expect(would == "refuse" and "no checkpoint that is whole" in said.stderr and "--set path=" in said.stderr, would, said.stderr)
    expect(check(1, "--set", "seed=4")[0] == "refuse", "another run")
    other = "dir=" + os.path.join(folder, "other")
    p = h.start(path, "--plain", "--set", other, "--set", "steps=1000000")
    h.wait_for_step(p, os.path.join(folder, "other"), 2)
    would, said = check(8, "--set", other, "--set", "steps=1000000")
    expect(would == "attach" and "it would show the run that is there" in said.stdout, would, said.stdout)
    h.run("send", os.path.join(folder, "other"), "stop")
    h.finish(p, 5)
    os.remove(os.path.join(folder, "text.txt"))
    done = h.run("check", path, "--set", "seed=4", code=4)
    expect("text.txt" in done.stderr, done.stderr)


CONTROLS = "\x1b]0;pwned\x07 \x9b31m \x7f"


def harmless(*texts):
    for text in texts:
        bad = [c for c in text if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]
        expect(not bad, "what drives a terminal", bad, repr(text[:600]))


def test_texts_do_not_drive_a_terminal(folder):
    """Names of runs and what is in their files, C0 and C1."""
    h.text_file(folder)
    runs = os.path.join(folder, "runs")
    out = os.path.join(runs, CONTROLS)
    os.makedirs(runs)
    done = h.run(h.cfg(folder, train={"steps": 2}, at={"2": "mark a\x9b31mb"}), "--plain")
    harmless(done.stdout, done.stderr)
    expect("mark: a\\u009b31mb" in done.stdout, done.stdout)
    shutil.move(os.path.join(folder, "out"), out)
    for name in ("metrics.jsonl", "journal.jsonl"):
        lines = h.json_lines(os.path.join(out, name))
        for m in lines:
            m.update({k: v + CONTROLS for k, v in m.items() if isinstance(v, str) and k not in ("type", "run", "reason")})
            if m["type"] == "step":
                m["words"] = "\n" + CONTROLS
            if m["type"] == "end":
                m["reason"] += CONTROLS
        h.write(os.path.join(out, name), "".join(json.dumps(m, ensure_ascii=False) + "\n" for m in lines))
    for words in (
        ("status", out),
        ("status", out, "--json"),
        ("list", runs),
        ("list", runs, "--json"),
        ("log", out, "--fields", "step,words"),
        ("log", out, "--fields", "step,words", "--csv"),
        ("log", out, "--fields", "step,words", "--json"),
        ("log", out, "--profile"),
        ("log", out, "--profile", "--json"),
    ):
        done = h.run(*words)
        harmless(done.stdout, done.stderr)
        expect(words[1] != out or words[0] == "log" or "pwned" in done.stdout, words, done.stdout)
        if "--json" in words:
            json.loads(done.stdout)
    expect(json.loads(h.run("status", out, "--json").stdout)["run"] == out, "JSON is not what it was")
    harmless(h.run("log", os.path.join(runs, "no" + CONTROLS), code=2).stderr)


def test_the_configs_of_the_repository_are_good(folder):
    h.run("check", os.path.join(h.SOURCE, "configs", "quickstart.cfg"))
    done = h.run("check", os.path.join(h.SOURCE, "configs", "finetune.cfg"), code=4)
    expect("smollm2-135m" in done.stderr, "only the model is missing from finetune.cfg", done.stderr)


def test_doctor_status_list(folder):
    doctor = h.run("doctor").stdout
    for line in (
        r"cores +\d+ physical, \d+ processors? in the affinity mask, \d+ NUMA nodes?",
        r"threads +\d+, (pinned to processors? [\d,-]+|not pinned: .+)",
        r"lanes +compute [\d,-]+, CPU half [\d,-]+, loader [\d,-]+",
        r"bandwidth +[\d.]+ GB/s reading, [\d.]+ GB/s copying",
        r"CPU Adam +[\d.]+ GB/s, [\d.]+ of what the memory streams",
        r"memory +",
    ):
        expect(re.search("(?m)^" + line, doctor), line, doctor)
    processor = min(os.sched_getaffinity(0))
    one = h.run("doctor", preexec_fn=lambda: os.sched_setaffinity(0, [processor])).stdout
    expect(re.search(rf"(?m)^lanes +compute {processor}, ", one) and "cores          1 physical, 1 processor " in one, one)
    h.run("list", cwd=folder)
    expect(h.run("status", os.path.join(folder, "nothing"), code=None).returncode != 0, "status of nothing")


if __name__ == "__main__":
    h.main()
