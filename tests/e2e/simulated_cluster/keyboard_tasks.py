"""What people do on the dashboard, each by keyboard alone; what came of it is read from the coordinator, where it has an effect there."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.e2e.simulated_cluster.keyboard import SECONDS, Hands, KeyboardWorld
from tests.e2e.stack import wait_until

Task = Callable[[KeyboardWorld], None]
TASKS: dict[str, Task] = {}
JOBS = re.compile(r"/api/v1/training/jobs(\?|$)")
#: So many times in a row the cluster may change between the plan that was seen and the job that is submitted.
MOST_PLANS = 5


def task(name: str) -> Callable[[Task], Task]:
    def keep(act: Task) -> Task:
        TASKS[name] = act
        return act

    return keep


def open_job(world: KeyboardWorld, name: str, tab: str = "", text: str = "submitted") -> None:
    world.hands.open(f"/jobs/{world.job(name)['id']}{f'?tab={tab}' if tab else ''}", text)


def submit(hands: Hands) -> None:
    """Submit the job of the form. While the cluster changes, the form asks to look at the new plan and to submit again: so it is done, as a person would."""
    for _ in range(MOST_PLANS):
        hands.to("^Submit job$")
        expect(hands.page.get_by_role("button", name="Submit job")).to_be_enabled()
        with hands.page.expect_response(lambda answer: answer.request.method == "POST" and JOBS.search(answer.url) is not None) as answered:
            hands.press("Enter")
        if answered.value.status != 409 or answered.value.json()["code"] != "plan_changed":
            break
        expect(hands.page.get_by_role("alert").filter(has_text="Look at the new plan and submit again.")).to_be_visible()
    hands.page.wait_for_url(re.compile(r"/jobs/[0-9A-Z]{26}"))


@task("skip the navigation")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/jobs", "gpt-1b-fsdp")
    world.hands.press("Tab")
    assert world.hands.focused() == "Skip to content"
    world.hands.press("Enter")
    assert world.hands.page.evaluate("document.activeElement.id") == "content"


@task("submit a job from a template")
def _(world: KeyboardWorld) -> None:
    hands = world.hands
    hands.open("/jobs", "gpt-1b-fsdp")
    hands.command("New job")
    hands.to("^Template$")
    hands.choose("Perceptron on one slot")
    hands.page.wait_for_url("**template=digits_mlp**")
    hands.to("^Name")
    hands.replace("by-keyboard")
    submit(hands)
    assert world.job("by-keyboard")["model"] == "mlp"


@task("change a number of a job before it is submitted")
def _(world: KeyboardWorld) -> None:
    hands = world.hands
    hands.open("/jobs/new?template=digits_mlp", "Effective spec")
    hands.to("^Name")
    hands.replace("by-keyboard-lr")
    hands.to(r"^Learning rate \(lr\)")
    hands.replace("2.5e-4")
    submit(hands)
    job = world.get(f"/training/jobs/{world.job('by-keyboard-lr')['id']}")
    assert job["spec"]["optimizer"]["lr"] == 2.5e-4


@task("see why Submit is off, and go to the field")
def _(world: KeyboardWorld) -> None:
    hands = world.hands
    hands.open("/jobs/new?template=digits_mlp", "Effective spec")
    hands.to("^Name")
    hands.replace("Bad Name!")
    hands.to("^Go to the f")
    expect(hands.page.get_by_text("Fix the problem first.")).to_be_visible()
    hands.press("Enter")
    assert hands.focused().startswith("Name")


@task("open the documentation of a field")
def _(world: KeyboardWorld) -> None:
    hands = world.hands
    hands.open("/jobs/new?template=digits_mlp", "Learning rate (lr)")
    hands.to(r"^Learning rate \(lr\)")
    with hands.page.context.expect_page() as opened:
        hands.press("F1")
    opened.value.wait_for_load_state()
    assert opened.value.url.endswith("/docs/reference/job_spec.html#field-optimizer.adamw.lr")
    expect(opened.value.locator("[id='field-optimizer.adamw.lr']")).to_be_attached()


@task("open a job from the list")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/jobs", "gpt-1b-fsdp")
    world.hands.to("^gpt-1b-fsdp$")
    world.hands.press("Enter")
    world.hands.page.wait_for_url(f"**/jobs/{world.job('gpt-1b-fsdp')['id']}*")


@task("pause a job")
def _(world: KeyboardWorld) -> None:
    open_job(world, "stuck-rank", text="Pause")
    world.hands.to("^Pause$")
    world.hands.press("Enter")
    world.await_job("stuck-rank", "to be paused", lambda job: job["state"] == "paused")


@task("resume it")
def _(world: KeyboardWorld) -> None:
    open_job(world, "stuck-rank", text="Resume")
    world.hands.to("^Resume$")
    world.hands.press("Enter")
    world.await_job("stuck-rank", "to run", lambda job: job["desired"] == "run" and job["state"] != "paused")


@task("resize a job")
def _(world: KeyboardWorld) -> None:
    open_job(world, "gpt-small-elastic", text="Resize")
    world.hands.to("^Resize$")
    world.hands.press("Enter")
    expect(world.hands.page.get_by_role("dialog")).to_be_visible()
    expect(world.hands.page.get_by_role("textbox", name="Nodes")).to_be_focused()
    world.hands.replace("3")
    world.hands.press("Enter")
    world.await_job("gpt-small-elastic", "24 ranks", lambda job: job["world_size"] == 24)


@task("cancel a job after its question")
def _(world: KeyboardWorld) -> None:
    open_job(world, "gpt-1b-long-context", text="Cancel job")
    world.hands.to("^Cancel job$")
    world.hands.press("Enter")
    expect(world.hands.page.get_by_role("button", name="Keep running")).to_be_focused()
    world.hands.to("^Cancel job$")
    world.hands.press("Enter")
    world.await_job("gpt-1b-long-context", "to be cancelled", lambda job: job["state"] == "cancelled")


@task("filter the jobs by state")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/jobs", "gpt-1b-fsdp")
    world.hands.to("^Filter by state$")
    world.hands.choose("failed")
    world.hands.page.wait_for_url("**status=**failed**")
    expect(world.hands.page.get_by_role("link", name="torchrun-script")).to_have_count(0)
    expect(world.hands.page.get_by_role("link", name="wrong-vocabulary")).to_be_visible()


@task("search the jobs by the slash key")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/jobs", "gpt-1b-fsdp")
    world.hands.press("/")
    world.hands.type("pipeline")
    expect(world.hands.page.get_by_role("link", name="gpt-1b-fsdp")).to_have_count(0)
    expect(world.hands.page.get_by_role("link", name="gpt-7b-pipeline")).to_be_visible()


@task("save a view")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/jobs?status=failed", "wrong-vocabulary")
    world.hands.to("^Views$")
    world.hands.press("Enter")
    world.hands.to("^Save this view as")
    world.hands.type("Broken by keyboard")
    world.hands.press("Enter")
    wait_until("the view", lambda: "Broken by keyboard" in world.client.get("/api/v1/training/saved-views").text, SECONDS)


@task("select three jobs and archive them")
def _(world: KeyboardWorld) -> None:
    names = ("a-mistake", "wrong-vocabulary", "too-large-for-its-cards")
    world.hands.open("/jobs?status=failed,cancelled", "wrong-vocabulary")
    for name in sorted(names, key=[row["name"] for row in world.get("/training/jobs", limit=100)["items"]].index):
        world.hands.to(f"^Select {name}$")
        world.hands.press("Space")
    expect(world.hands.page.get_by_text("3 selected")).to_be_visible()
    world.hands.back_to("^Change$")
    world.hands.press("Enter")
    world.hands.pick("Archive…")
    expect(world.hands.page.get_by_role("dialog")).to_be_visible()
    world.hands.to("^Archive")
    world.hands.press("Enter")
    for name in names:
        world.await_job(name, "to be archived", lambda job: job["archived_at"] is not None)


@task("go to a job by the palette")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/cluster", "sim-0")
    world.hands.command("gpt-7b-tensor")
    world.hands.page.wait_for_url(f"**/jobs/{world.job('gpt-7b-tensor')['id']}*")


@task("go to a line of the log by its time")
def _(world: KeyboardWorld) -> None:
    job = world.job("gpt-1b-fsdp")
    (line,) = world.get(f"/training/jobs/{job['id']}/logs", limit=1)["items"]
    open_job(world, "gpt-1b-fsdp", "logs", "Times:")
    world.hands.to("^Jump to$")
    world.hands.press("Enter")
    expect(world.hands.page.get_by_role("textbox", name="Line or time")).to_be_focused()
    world.hands.type(str(line["time"]))
    world.hands.press("Enter")
    world.hands.page.wait_for_url(f"**line={line['seq']}*")


@task("search the log by a regular expression")
def _(world: KeyboardWorld) -> None:
    open_job(world, "gpt-1b-fsdp", "logs", "Times:")
    world.hands.to("^Search logs$")
    world.hands.press("Tab")
    assert world.hands.focused() == "Regular expression"
    world.hands.press("Enter")
    world.hands.back_to("^Search logs$")
    world.hands.type("(")
    expect(world.hands.page.get_by_text("not a valid regular expression")).to_be_visible()
    world.hands.replace("[a-z]{3,}")
    world.hands.page.wait_for_url("**regex=true**")
    expect(world.hands.page.get_by_text("not a valid regular expression")).to_have_count(0)


@task("zoom the charts to some steps")
def _(world: KeyboardWorld) -> None:
    open_job(world, "gpt-1b-fsdp", text="Loss")
    world.hands.to("^From step$")
    world.hands.type("5")
    world.hands.press("Tab")
    world.hands.type("20")
    world.hands.press("Enter")
    world.hands.page.wait_for_url("**from=5**")


@task("read the values of a chart as a table")
def _(world: KeyboardWorld) -> None:
    open_job(world, "resnet-56-lr-1", text=" at step ")
    world.hands.to("[Tt]able")
    world.hands.press("Enter")
    expect(world.hands.page.get_by_role("table").first).to_be_visible()


@task("compare two jobs")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/jobs?q=resnet", "resnet-56-lr-2")
    for name in ("resnet-56-lr-3", "resnet-56-lr-2"):
        world.hands.to(f"^Select {name}$")
        world.hands.press("Space")
    world.hands.back_to("^Compare 2 jobs$")
    world.hands.press("Enter")
    world.hands.page.wait_for_url("**/compare**")
    expect(world.hands.page.get_by_text("Spec differences").first).to_be_visible()


@task("hide one run of a comparison")
def _(world: KeyboardWorld) -> None:
    ids = ",".join(world.job(name)["id"] for name in ("resnet-56-lr-1", "resnet-56-lr-2"))
    world.hands.open(f"/compare?jobs={ids}", "Spec differences")
    button = world.hands.page.locator("button[aria-pressed]", has_text="resnet-56-lr-1").first
    expect(button).to_be_visible()
    for _ in range(60):
        world.hands.press("Tab")
        if button.evaluate("e => e === document.activeElement"):
            break
    world.hands.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "false")


@task("open the details of an incident")
def _(world: KeyboardWorld) -> None:
    open_job(world, "gpt-small-with-spares", "incidents", "Goodput")
    world.hands.to("^Details: ")
    world.hands.press("Enter")
    expect(world.hands.page.get_by_role("table", name="Phases of the outage").first).to_be_visible()


@task("limit the timeline to people's actions")
def _(world: KeyboardWorld) -> None:
    open_job(world, "gpt-small-elastic", "timeline", "was submitted")
    world.hands.to("^Filter events by kind$")
    world.hands.choose("People's actions")
    world.hands.page.wait_for_url("**events=people**")


@task("restore a job from a checkpoint")
def _(world: KeyboardWorld) -> None:
    open_job(world, "resnet-56-lr-1", "checkpoints", "Blocking time")
    world.hands.to("^Restore from step 250")
    world.hands.press("Enter")
    expect(world.hands.page.get_by_role("textbox", name="Name of the new job")).to_be_visible()
    world.hands.to("^Name of the new job")
    world.hands.replace("restored-by-keyboard")
    world.hands.press("Enter")
    world.await_job("restored-by-keyboard", "to be made", lambda job: True)


@task("ask for the command that adds a node")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/cluster", "sim-0")
    world.hands.to("^Add node$")
    world.hands.press("Enter")
    expect(world.hands.page.get_by_role("dialog")).to_contain_text("paceline worker")
    world.hands.press("Escape")
    expect(world.hands.page.get_by_role("dialog")).to_have_count(0)


@task("drain a node after its question")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/cluster", "sim-0")
    world.hands.to("^Actions for sim-")
    name = world.hands.focused().removeprefix("Actions for ")
    world.hands.press("Enter")
    world.hands.pick("Drain and remove")
    expect(world.hands.page.get_by_role("dialog")).to_be_visible()
    world.hands.to("^Drain and remove$")
    world.hands.press("Enter")

    def leaves() -> bool:
        states = {node["name"]: node["state"] for node in world.get("/cluster/nodes", limit=200)["items"]}
        return states.get(name) in (None, "draining", "gone")

    wait_until(f"{name} to leave", leaves, SECONDS)


@task("create an API key")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/people?tab=keys", "API keys")
    world.hands.to("^New (API )?key$")
    # Without a look at the dialog: every key after the one that opens it is for its first field.
    world.hands.press("Enter")
    world.hands.type("by-keyboard")
    world.hands.press("Enter")
    wait_until("the key", lambda: "by-keyboard" in world.client.get("/api/v1/keys").text, SECONDS)


@task("sign out")
def _(world: KeyboardWorld) -> None:
    user = next(user for user in world.get("/users")["items"] if user["name"] == "ada")
    link = world.client.post(f"/api/v1/users/{user['id']}/login-link").json()["url"]
    context = world.browser.new_context()
    hands = Hands(context.new_page(), world.hands.server)
    hands.page.goto(link)
    expect(hands.page.get_by_role("link", name="gpt-1b-fsdp")).to_be_visible()
    hands.to("^Sign out$")
    hands.press("Enter")
    hands.page.wait_for_url("**/login**")
    context.close()


@task("read the documentation")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/jobs", "gpt-1b-fsdp")
    world.hands.to("^Docs$")
    with world.hands.page.context.expect_page() as opened:
        world.hands.press("Enter")
    expect(opened.value.get_by_role("heading").first).to_be_visible()
    assert "/docs/" in opened.value.url


@task("change the theme")
def _(world: KeyboardWorld) -> None:
    world.hands.open("/jobs", "gpt-1b-fsdp")
    before = world.hands.page.evaluate("document.documentElement.dataset.mantineColorScheme")
    for _ in range(3):
        world.hands.to("^Colour scheme: ")
        world.hands.press("Enter")
        if world.hands.page.evaluate("document.documentElement.dataset.mantineColorScheme") != before:
            return
    raise AssertionError(f"it is still {before}")
