from app.cli import main

main(prog_name="conch")
