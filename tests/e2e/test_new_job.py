"""The form of a new job in a real browser: what is typed is what is submitted, and no edited document is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests.e2e.signed_in import signed_in
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# A deadline, not a pause: a loaded machine draws a page slowly.
expect.set_options(timeout=30_000)

SPELLINGS = {
    ("Learning rate (lr)", ".0003"): 0.0003,
    ("Learning rate (lr)", "3e-4"): 0.0003,
    ("Learning rate (lr)", "6.0E-4"): 0.0006,
    ("Epsilon (eps)", "1e-8"): 1e-8,
    ("Steps", "1e4"): 10_000,
    ("Steps", "1_000"): 1000,
}
PATHS = {"Learning rate (lr)": ("optimizer", "lr"), "Epsilon (eps)": ("optimizer", "eps"), "Steps": ("training", "steps")}
REFUSED = {"-34": "Must be greater than 0, not -34", "fast": 'Must be a number, not "fast"', "6.0E": 'Must be a number, not "6.0E"'}


@pytest.fixture
def page(stack: Stack, browser: Browser) -> Iterator[Page]:
    with signed_in(stack, browser, height=2400) as page:  # the editor draws only the lines in sight
        page.goto(f"{stack.server}/jobs/new")
        yield page


def document_of(page: Page) -> Any:
    """The YAML that the page shows; it goes back to the form."""
    page.get_by_text("YAML", exact=True).click()
    lines = page.locator(".cm-line")
    expect(lines.first).to_be_visible()
    text = "\n".join(lines.all_inner_texts())
    page.get_by_text("Form", exact=True).click()
    return yaml.safe_load(text)


@pytest.mark.parametrize("how", ["typed", "pasted"])
def test_a_number_means_in_the_document_what_was_typed_into_the_form(page: Page, how: str) -> None:
    for (label, spelling), number in SPELLINGS.items():
        field = page.get_by_label(label, exact=True).first
        field.fill("")
        if how == "typed":
            field.press_sequentially(spelling)
        else:
            page.keyboard.insert_text(spelling)
        field.blur()
        expect(field).to_have_value(spelling)
        section, name = PATHS[label]
        assert float(document_of(page)[section][name]) == number, spelling


def test_what_is_no_number_is_refused_at_its_field_and_cannot_be_submitted(page: Page) -> None:
    field = page.get_by_label("Learning rate (lr)", exact=True)
    for typed, sentence in REFUSED.items():
        field.fill("")
        field.press_sequentially(typed)
        expect(field).to_have_value(typed)
        expect(field).to_have_accessible_description(sentence)
        expect(page.get_by_role("button", name="Submit job")).to_be_disabled()
    page.get_by_role("button", name="Submit job").scroll_into_view_if_needed()
    page.get_by_role("button", name="Go to the field").click()
    expect(field).to_be_focused()
    expect(field).to_be_in_viewport()


def test_an_edited_document_survives_a_reload_and_a_look_at_another_page(page: Page) -> None:
    name = page.get_by_label("Name", exact=True)
    name.fill("kept")
    page.reload()
    expect(name).to_have_value("kept")
    expect(page.get_by_text("This is your draft")).to_be_visible()
    page.get_by_role("link", name="Cluster").first.click()
    page.get_by_role("button", name="Keep draft and leave").click()
    expect(page.get_by_role("heading", name="Cluster", level=1)).to_be_visible()
    page.get_by_role("link", name="New job").first.click()
    expect(name).to_have_value("kept")
    page.get_by_role("button", name="Start over").click()
    page.get_by_role("button", name="Discard draft").click()
    expect(name).to_have_value("gpt-stdlib")


def test_a_failed_job_is_edited_and_submitted_again_from_its_first_button(stack: Stack, page: Page) -> None:
    code = str(Path(__file__).parent / "user_code")
    broken: dict[str, Any] = {"model": None, "data": None, "entrypoint": "broken_task:make_task", "fault_tolerance": {"max_restarts": 0}}
    job_id = stack.submit(tiny_gpt("again", steps=50, environment={"working_directory": code}, **broken))
    stack.wait_for_state(job_id, "failed")
    page.goto(f"{stack.server}/jobs/{job_id}")
    again = page.locator("header").get_by_role("link").filter(has_text="Edit and resubmit")
    again.click()
    expect(page.get_by_label("Entrypoint")).to_have_value("broken_task:make_task")
    page.get_by_label("Name", exact=True).fill("mended")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(lambda url: "/jobs/" in url and "new" not in url and job_id not in url)
    submitted = stack.job(page.url.rpartition("/")[2])
    assert (submitted["name"], submitted["spec"]["entrypoint"]) == ("mended", "broken_task:make_task")


def test_a_folder_that_is_chosen_is_the_code_of_the_job(stack: Stack, page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "größe"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "answer.py").write_text("ANSWER = 42\n")
    (folder / "main.py").write_text("from lib.answer import ANSWER\nprint('the answer is', ANSWER)\n")
    (folder / "big.bin").write_bytes(b"0" * 1000)
    (folder / ".gitignore").write_text("*.bin\n")
    page.get_by_text("YAML", exact=True).click()
    editor = page.locator(".cm-content")
    editor.fill("name: from-a-browser\nscript: {path: main.py}\nresources: {nodes: 1}\n")
    page.get_by_text("Form", exact=True).click()
    page.locator("summary").get_by_text("Environment", exact=True).click()
    page.get_by_label("Folder with code").set_input_files(folder)
    expect(page.get_by_text("größe: 3 files")).to_contain_text("Left out: big.bin.")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(re.compile("/jobs/[0-9A-Z]{26}"))
    where = ("--server", stack.server, "--api-key", stack.api_key)
    assert stack.paceline("wait", "from-a-browser", "--timeout", "60", *where).returncode == 0
    assert "the answer is 42" in stack.paceline("logs", "from-a-browser", *where).stdout


def test_the_code_of_an_earlier_job_is_found_by_its_name_and_runs_again(stack: Stack, page: Page, tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text("print('run by', __import__('pathlib').Path('shared.py').exists())\n")
    where = ("--server", stack.server, "--api-key", stack.api_key)
    spec = tmp_path / "job.yaml"
    spec.write_text("name: had-code\nscript: {path: shared.py}\nresources: {nodes: 1}\n")
    (tmp_path / ".pacelineignore").write_text("job.yaml\n")
    submitted = stack.paceline("submit", str(spec), "--workdir", str(tmp_path), *where)
    assert submitted.returncode == 0, submitted.stderr
    page.get_by_text("YAML", exact=True).click()
    page.locator(".cm-content").fill("name: same-code\nscript: {path: shared.py}\nresources: {nodes: 1}\n")
    page.get_by_text("Form", exact=True).click()
    page.locator("summary").get_by_text("Environment", exact=True).click()
    page.get_by_role("button", name="Code of an earlier job").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Search").fill("had-c")
    dialog.get_by_role("button", name=re.compile("^had-code")).click()
    expect(page.get_by_text(f"{tmp_path.name} as it was sent before")).to_be_visible()
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(re.compile("/jobs/[0-9A-Z]{26}"))
    assert stack.paceline("wait", "same-code", "--timeout", "60", *where).returncode == 0
    assert "run by True" in stack.paceline("logs", "same-code", *where).stdout
    codes = [stack.job(job["id"])["spec"]["environment"]["code"] for job in stack.get("/training/jobs", limit=2)["items"]]
    assert codes[0] == codes[1]
