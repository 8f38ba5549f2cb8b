"""Testing: contracts that every component must keep, and inputs with known answers. Shipped, so that plug-ins inherit them.

    pytest --pyargs scalerl.testing

finds every component of every family, those of installed plug-ins included, and holds it to its family's contract.
"""
