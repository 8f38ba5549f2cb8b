"""docs/recipes.md: its table of the catalogue is what the catalogue says."""

from pathlib import Path

from scalerl.recipes import recipe_names, resolve
from scalerl.recipes.neighbours import INGREDIENTS, neighbours
from scalerl.recipes.tree import show

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
BEGIN, END = "<!-- catalogue -->\n", "<!-- end of the catalogue -->\n"


def catalogue_table():
    """What ScaleRL has, and per recipe the ingredients in which it differs, on the paper's scale."""
    originals, rows = {}, {}
    for name in recipe_names():
        # Without what comes along because the ingredient is no recipe alone: that stands in its own column.
        found = {
            neighbour.ingredient: [change for change in neighbour.changes if change.path in INGREDIENTS[neighbour.ingredient]]
            for neighbour in neighbours("scalerl", baseline=name, scale="paper-8b")
        }
        rows[name] = {ingredient: ", ".join(show(change.right) for change in changes) for ingredient, changes in found.items()}
        for ingredient, changes in found.items():
            originals.setdefault(ingredient, {}).update((change.path, show(change.left)) for change in changes)
    rows["scalerl"] = {ingredient: ", ".join(had[path] for path in sorted(had)) for ingredient, had in originals.items()}
    names = ["scalerl", *(name for name in rows if name != "scalerl")]
    lines = [["recipe", *originals], ["---"] * (len(originals) + 1)]
    lines += [[f"`{name}`", *(rows[name].get(ingredient, "") for ingredient in originals)] for name in names]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def test_the_table_is_the_catalogues():
    page = PAGE.read_text()
    written = page[page.index(BEGIN) + len(BEGIN) : page.index(END)]
    assert written.strip() == catalogue_table().strip(), f"write into {PAGE}:\n{catalogue_table()}"


def test_every_recipe_names_its_source():
    for name in recipe_names():
        about = resolve(name).about
        assert f"`{name}`" in PAGE.read_text()
        assert "arXiv" in about or "September 2026" in about, about
