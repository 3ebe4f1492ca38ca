"""Dialogs, menus, selections and mistakes in forms, each opened on the simulated cluster as a person does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.e2e.simulated_cluster.surfaces import Surface


def press(name: str | re.Pattern[str], role: str = "button") -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.get_by_role(role, name=name, exact=True).first.click()  # type: ignore[arg-type]

    return act


def dialog(name: str | re.Pattern[str]) -> Callable[[Page], None]:
    """Press what opens a dialog, and wait for it."""

    def act(page: Page) -> None:
        press(name)(page)
        expect(page.get_by_role("dialog").first).to_be_visible()

    return act


def menu(name: str | re.Pattern[str], item: str | None = None) -> Callable[[Page], None]:
    """Open a menu, and with `item` the dialog behind it."""

    def act(page: Page) -> None:
        press(name)(page)
        first = page.get_by_role("menuitem").first
        expect(first).to_be_visible()
        if item is not None:
            page.get_by_role("menuitem", name=item, exact=True).click()
            expect(page.get_by_role("dialog").first).to_be_visible()

    return act


def listbox(name: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.get_by_role("combobox", name=name).or_(page.get_by_role("textbox", name=name)).first.click()
        expect(page.get_by_role("option").first).to_be_visible()

    return act


def popover(name: str | re.Pattern[str], text: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        press(name)(page)
        expect(page.get_by_text(text).first).to_be_visible()

    return act


def keys(combination: str, role: str = "dialog") -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.keyboard.press(combination)
        expect(page.get_by_role(role).first).to_be_visible()  # type: ignore[arg-type]

    return act


def mistakes(page: Page) -> None:
    """Numbers, a name and a list that cannot be."""
    for label, wrong in (("Name", "Bad Name!"), ("Priority", "many"), ("Learning rate (lr)", "-1")):
        page.get_by_role("textbox", name=label, exact=True).fill(wrong)
    page.keyboard.press("Tab")
    expect(page.get_by_text("problem").first).to_be_visible()


def unfolded(page: Page) -> None:
    """Every section of the form, by its summary."""
    expect(
        page.locator("details > summary").filter(has_text="Communication")
    ).to_be_attached()  # sections below the first screen come later
    folded = page.locator("details:not([open]) > summary")
    while folded.count():
        folded.first.click()
    expect(page.get_by_role("checkbox", name="Static graph")).to_be_attached()


def bad_pattern(page: Page) -> None:
    page.get_by_role("button", name="Regular expression").click()
    page.get_by_role("textbox", name="Search logs").fill("step (")
    expect(page.get_by_text("not a valid regular expression")).to_be_visible()


def two_selected(page: Page) -> None:
    for box in page.get_by_role("checkbox", name=re.compile("^Select (?!all)")).all()[:2]:
        box.click()
    expect(page.get_by_text("2 selected")).to_be_visible()


def selection_menu(page: Page) -> None:
    two_selected(page)
    menu("Change")(page)


def changing(item: str) -> Callable[[Page], None]:
    """Select two jobs, and open the dialog behind an entry of their menu."""

    def act(page: Page) -> None:
        two_selected(page)
        menu("Change", item)(page)

    return act


def chart_as_table(page: Page) -> None:
    press("Loss as a table")(page)
    expect(page.get_by_role("region", name="Loss chart").get_by_role("table").last).to_be_visible()


def outage(page: Page) -> None:
    press(re.compile("^Details: "))(page)
    expect(page.get_by_role("table", name="Phases of the outage").first).to_be_visible()


def register_dialog(page: Page) -> None:
    press(re.compile("^Register the checkpoint of step"), "link")(page)
    expect(page.get_by_role("dialog", name="Register a model version")).to_be_visible()


def registered(page: Page) -> None:
    """A model with a version, made by the dialog."""
    register_dialog(page)
    page.get_by_role("textbox", name="Model").fill("resnet-56")
    page.get_by_role("textbox", name="Alias").fill("production")
    page.get_by_role("button", name="Register", exact=True).click()
    expect(page.get_by_role("table", name="Versions of resnet-56")).to_be_visible()


def email_channel(page: Page) -> None:
    dialog("New channel")(page)
    page.get_by_role("radio", name="E-mail").check()
    expect(page.get_by_role("textbox", name="E-mail addresses")).to_be_visible()


def signing_secret(page: Page) -> None:
    """A channel is made for what comes after, and its secret is shown. Nobody has the domain `invalid`."""
    dialog("New channel")(page)
    page.get_by_role("textbox", name="Name").fill(f"hook-{time.time_ns()}")
    page.get_by_role("textbox", name="Address").fill("https://hooks.invalid/paceline")
    page.get_by_role("button", name="Create channel").click()
    expect(page.get_by_text("are signed with this secret")).to_be_visible()


def all_events(page: Page) -> None:
    dialog("New rule")(page)
    for event in ("Queued longer than", "Goodput below"):
        page.get_by_role("checkbox", name=event).check()
    expect(page.get_by_role("textbox", name="Minutes in the queue")).to_be_visible()


def rule_made(page: Page) -> None:
    dialog("New rule")(page)
    page.get_by_role("button", name="Create rule").click()
    expect(page.get_by_role("table", name="Rules")).to_be_visible()


def channel_tested(page: Page) -> None:
    """What is sent there does not arrive, and the history says so."""
    press(re.compile("^Test "))(page)
    expect(page.get_by_role("table", name="History")).to_be_visible()


def full_screen(page: Page) -> None:
    menu("Actions for Loss", "Full screen")(page)
    expect(page.get_by_role("dialog", name="Loss").locator("[data-last-step]")).to_be_visible()


def chart_saved(page: Page) -> None:
    dialog("Add chart")(page)
    listbox("Metrics")(page)
    page.get_by_role("option").first.click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Save chart").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def pool_dialog(page: Page) -> None:
    dialog("New pool")(page)
    expect(page.get_by_role("dialog").locator(".cm-content")).to_be_visible()


def wrong_pool(page: Page) -> None:
    pool_dialog(page)
    page.get_by_role("dialog").locator(".cm-content").fill("name: lab\nprovider: {type: manual}\nslotz: 4\n")
    expect(page.get_by_role("list", name="Problems")).to_be_visible()


def pool_made(page: Page) -> None:
    """One that grows for no job: its budget is used."""
    pool_dialog(page)
    text = "name: spent\nprovider: {type: slurm, partition: gpu}\nslots: 8\nautoscale: {device: cuda, budget_node_hours: 0}\n"
    page.get_by_role("dialog").locator(".cm-content").fill(text)
    page.get_by_role("button", name="Create pool").click()
    expect(page.get_by_role("list", name="Jobs that spent does not grow for")).to_be_visible()


def earlier_code(page: Page) -> None:
    unfolded(page)
    dialog("Code of an earlier job")(page)


JOB, SAVED = "/jobs/{gpt-1b-fsdp}", "/jobs/{resnet-56-lr-1}?tab=checkpoints"
OPENED = (
    Surface("palette", "/jobs", "gpt-7b-pretraining", keys("Control+k")),
    Surface("shortcuts", "/jobs", "gpt-7b-pretraining", keys("Shift+?")),
    Surface("jobs, state filter", "/jobs", "gpt-7b-pretraining", listbox("Filter by state")),
    Surface("jobs, filter menu", "/jobs", "gpt-7b-pretraining", popover("Filter", "Project")),
    Surface("jobs, views", "/jobs", "gpt-7b-pretraining", popover("Views", "view")),
    Surface("jobs, columns", "/jobs", "gpt-7b-pretraining", popover("Columns", "Best loss")),
    Surface("jobs, selected", "/jobs", "gpt-7b-pretraining", two_selected),
    Surface("jobs, change menu", "/jobs", "gpt-7b-pretraining", selection_menu),
    Surface("jobs, archive", "/jobs", "gpt-7b-pretraining", changing("Archive…")),
    Surface("new job, all sections", "/jobs/new", "Effective spec", unfolded),
    Surface("new job, earlier code", "/jobs/new", "Effective spec", earlier_code),
    Surface("new job, templates", "/jobs/new", "Effective spec", listbox("Template")),
    # What is written there is a draft from now on, in every new job.
    Surface("new job, mistakes", "/jobs/new", "Effective spec", mistakes),
    Surface("jobs, label", "/jobs", "gpt-7b-pretraining", changing("Label or move…")),
    Surface("jobs, cancel", "/jobs", "gpt-7b-pretraining", changing("Cancel…")),
    Surface("jobs, delete data", "/jobs", "gpt-7b-pretraining", changing("Delete data…")),
    Surface("job, cancel", JOB, "Cancel job", dialog("Cancel job")),
    Surface("job, resize", JOB, "Resize", dialog("Resize")),
    Surface("job, edit", JOB, "Cancel job", dialog(re.compile("^Edit"))),
    Surface("job, restore", SAVED, "Blocking time", dialog(re.compile("^Restore from"))),
    Surface("job, download checkpoint", SAVED, "Blocking time", dialog(re.compile("^Download the checkpoint"))),
    Surface("job, delete checkpoint", SAVED, "Blocking time", dialog(re.compile("^Delete the checkpoint"))),
    Surface("job, register checkpoint", SAVED, "Blocking time", register_dialog),
    Surface("job, bad pattern", f"{JOB}?tab=logs", "Times:", bad_pattern),
    Surface("job, jump", f"{JOB}?tab=logs", "Times:", popover("Jump to", "Line or time")),
    Surface("chart as table", JOB, "nats", chart_as_table),
    Surface("chart menu", JOB, "nats", menu("Actions for Loss")),
    Surface("chart, value range", JOB, "nats", menu("Actions for Loss", "Set value range…")),
    Surface("chart, full screen", JOB, "nats", full_screen),
    Surface("new chart", JOB, "nats", dialog("Add chart")),
    Surface("own chart", JOB, "nats", chart_saved),
    Surface("timeline, kinds", f"{JOB}?tab=timeline", "was submitted", listbox("Filter events by kind")),
    Surface("incident", "/jobs/{gpt-small-with-spares}?tab=incidents", "Goodput", outage),
    Surface("models, registered", SAVED, "Blocking time", registered),
    Surface("model, aliases", "/models", "production", dialog(re.compile("^Aliases of resnet-56"))),
    Surface("model, delete", "/models", "production", dialog(re.compile("^Delete resnet-56"))),
    Surface("channel, new", "/notifications", "Channels", dialog("New channel")),
    Surface("channel, e-mail", "/notifications", "Channels", email_channel),
    Surface("channel, secret", "/notifications", "Channels", signing_secret),
    Surface("channel, tested", "/notifications", "Channels", channel_tested),
    Surface("channel, delete", "/notifications", "Channels", dialog(re.compile("^Delete hook-"))),
    Surface("rule, all events", "/notifications", "Channels", all_events),
    Surface("rule", "/notifications", "Channels", rule_made),
    Surface("add node", "/cluster?add=true", "paceline worker"),
    Surface("node menu", "/cluster", "sim-0", menu(re.compile("^Actions for sim-"))),
    Surface("drain", "/cluster", "sim-0", menu(re.compile("^Actions for sim-"), "Drain and remove")),
    Surface("pool, new", "/cluster", "sim-0", pool_dialog),
    Surface("pool, wrong", "/cluster", "sim-0", wrong_pool),
    Surface("pool, why it does not grow", "/cluster", "sim-0", pool_made),
    Surface("pool, edit", "/cluster", "sim-0", dialog("Edit spent")),
    Surface("pool, delete", "/cluster", "sim-0", dialog("Delete spent")),
    Surface("new secret", "/people?tab=secrets", "Secrets", dialog("New secret")),
    Surface("new user", "/people?tab=users", "guest", dialog("New user")),
    Surface("login link", "/people?tab=users", "guest", dialog("Login link for grace")),
    Surface("disable user", "/people?tab=users", "guest", dialog("Disable grace")),
    Surface("new key", "/people?tab=keys", "API keys", dialog("New API key")),
    Surface("revoke key", "/people?tab=keys", "API keys", dialog(re.compile("^Revoke"))),
)
